"""Random models of real architectures, small enough for two cores, that attend to position.

Weights are drawn large on purpose: with the usual tiny ones every answer is nearly uniform and a
wrong key would hardly show.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VOCAB = 512
MAX_POSITIONS = 8192

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": MAX_POSITIONS,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True)
class TinyModel:
    """config: what differs from the common shape. drop: common fields this config has not.
    module: vLLM's file for it, where not every version has one. key_bias: of every key on the
    four pairs of channels that turn slowest, negative on every other head; trained models have
    such, see decision 0009. key_mean: the same without a bias, from what all embeddings share; see
    decision 0013."""

    name: str
    model_type: str
    config: dict[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    module: str | None = None
    key_bias: float | None = None
    key_mean: float | None = None

    @property
    def is_native(self) -> bool:
        spec = find_spec("vllm")
        assert spec is not None
        assert spec.origin is not None
        models = Path(spec.origin).parent / "model_executor" / "models"
        return self.module is None or (models / f"{self.module}.py").exists()

    def save(self, folder: Path) -> Path:
        """Write config and weights, once; returns the model's folder."""
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        path = folder / self.name
        if (path / "config.json").exists():
            return path
        fields = {k: v for k, v in _COMMON.items() if k not in self.drop} | self.config
        config = AutoConfig.for_model(self.model_type, **fields)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() == 2:
                    weight.normal_(std=1.3 / weight.shape[1] ** 0.5)
                elif name.endswith("bias"):
                    weight.normal_(std=0.5)
                elif "norm" in name:
                    weight.add_(torch.randn_like(weight) * 0.1)
            for name, weight in model.named_parameters():
                if self.key_bias is not None and name.endswith("k_proj.bias"):
                    _slow_channels(weight)[:] = self.key_bias * _signs(weight)
            if self.key_mean is not None:
                embedding = model.get_input_embeddings().weight
                shared = torch.randn(embedding.shape[1])
                embedding.add_(shared / 4)
                # A normalised vector of n numbers has length sqrt(n).
                constant = self.key_mean * shared / shared.norm() / len(shared) ** 0.5
                for name, weight in model.named_parameters():
                    if name.endswith("k_proj.weight"):
                        _slow_channels(weight).add_(_signs(weight)[..., None] * constant)
        model.to(torch.float32).save_pretrained(path)
        saved = json.loads((path / "config.json").read_text())
        assert saved["model_type"] == self.model_type
        return path


def _slow_channels(weight: Any) -> Any:
    """View of the four pairs that turn slowest in a weight or bias of all heads' keys."""
    by_head = weight.view(-1, 2, _COMMON["head_dim"] // 2, *weight.shape[1:])
    return by_head[:, :, -4:]


def _signs(weight: Any) -> Any:
    """Negative for every other head: [num_heads, 1, 1]."""
    import torch

    return (-1.0) ** torch.arange(weight.shape[0] // _COMMON["head_dim"])[:, None, None]


def _rope(kind: str, **fields: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **fields}}


LLAMA = TinyModel("llama", "llama")
COMMON_KEYS = TinyModel("llama-common-keys", "llama", key_mean=100.0)
LARGE_BIAS = TinyModel("qwen2-large-key-bias", "qwen2", key_bias=354.0)
MODELS = {
    model.name: model
    for model in (
        LLAMA,
        TinyModel(
            "llama3-scaled",
            "llama",
            _rope(
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=1024,
            ),
        ),
        TinyModel(
            "yarn", "llama", _rope("yarn", factor=4.0, original_max_position_embeddings=2048)
        ),
        TinyModel("linear", "llama", _rope("linear", factor=4.0)),
        TinyModel("mistral-window", "mistral", {"sliding_window": 48}),
        TinyModel("qwen2", "qwen2"),
        TinyModel("qwen3", "qwen3"),
        TinyModel(
            "gemma3",
            "gemma3_text",
            {
                "sliding_window": 48,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                "query_pre_attn_scalar": 32,
            },
        ),
        TinyModel(
            "stablelm-partial-25",
            "stablelm",
            {
                "head_dim": 32,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 10000.0,
                    "partial_rotary_factor": 0.25,
                },
                "layer_norm_eps": 1e-5,
                "use_qkv_bias": True,
            },
            drop=("rms_norm_eps",),
        ),
        TinyModel(
            "glm4-partial-50-interleaved",
            "glm4",
            {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 10000.0,
                    "partial_rotary_factor": 0.5,
                },
            },
        ),
        TinyModel(
            "phi-partial-50",
            "phi",
            {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 10000.0,
                    "partial_rotary_factor": 0.5,
                },
                "num_key_value_heads": 4,
                "intermediate_size": 512,
                "layer_norm_eps": 1e-5,
            },
            drop=("rms_norm_eps", "head_dim"),
            module="phi",
        ),
        TinyModel(
            "gpt-neox-partial-25",
            "gpt_neox",
            {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 10000.0,
                    "partial_rotary_factor": 0.25,
                },
                "rotary_pct": 0.25,
                "hidden_size": 256,
                "layer_norm_eps": 1e-5,
            },
            drop=("rms_norm_eps", "head_dim", "num_key_value_heads"),
            module="gpt_neox",
        ),
        TinyModel(
            "gptj-interleaved",
            "gptj",
            {
                "n_embd": 128,
                "n_layer": 3,
                "n_head": 4,
                "n_positions": MAX_POSITIONS,
                "rotary_dim": 16,
                "n_inner": 256,
                "vocab_size": VOCAB,
            },
            drop=(
                "hidden_size",
                "intermediate_size",
                "num_hidden_layers",
                "num_attention_heads",
                "num_key_value_heads",
                "head_dim",
                "max_position_embeddings",
                "rms_norm_eps",
            ),
        ),
        TinyModel(
            "phi3-longrope",
            "phi3",
            {
                "original_max_position_embeddings": 2048,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 10000.0,
                    "short_factor": [1.0 + 0.05 * i for i in range(16)],
                    "long_factor": [1.0 + 0.3 * i for i in range(16)],
                    "original_max_position_embeddings": 2048,
                },
            },
            drop=("head_dim",),
        ),
    )
}
