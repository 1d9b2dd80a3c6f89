"""Whose rotary tables we take: attention classes by name, and everything else refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from inferscale_core.errors import Unsupported
from inferscale_core.vllm_connector.rotary import ATTENTION_CLASSES, find_tables

ROOT = Path(__file__).resolve().parents[3]


class Attention(nn.Module):
    """As the engine's: names its layer and holds an implementation."""

    layer_name = "model.layers.0.attn"
    impl = object()


class UnheardOfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Attention()


class LlamaAttention(UnheardOfAttention):
    """By its name one of ours, but it is handed its angles from outside."""


def refusal(model: nn.Module) -> str:
    with pytest.raises(Unsupported) as refused:
        find_tables(model, [Attention.layer_name], torch.device("cpu"), 4096)
    return str(refused.value)


def test_an_attention_class_that_is_not_listed_is_refused_by_name() -> None:
    model = nn.Sequential(UnheardOfAttention())
    assert refusal(model) == "layer model.layers.0.attn: attention class UnheardOfAttention"


def test_a_listed_class_without_a_rotary_embedding_of_its_own_is_refused() -> None:
    """What the engine's Transformers backend gives for architectures that it has no class for."""
    model = nn.Sequential(LlamaAttention())
    assert refusal(model).endswith("LlamaAttention has 0 rotary embeddings, not 1")


def test_a_model_whose_attention_is_out_of_reach_is_refused_by_its_name() -> None:
    assert refusal(nn.Sequential(nn.Linear(2, 2))).startswith(
        "layer model.layers.0.attn: Sequential"
    )


def test_the_architecture_page_lists_the_classes_that_are_taken() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Models\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+Attention)`", section)) == ATTENTION_CLASSES
