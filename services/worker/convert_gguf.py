"""`python convert_gguf.py FILE.gguf FOLDER`: a GGUF file as plain bf16 safetensors with tokenizer.

Run as a process of its own: it holds the whole model in memory, more than once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel


def convert(gguf: Path, folder: Path) -> None:
    source, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.bfloat16)
    _forget_quantisation(model)
    model.save_pretrained(str(folder), safe_serialization=True)
    tokenizer.save_pretrained(str(folder))


def _forget_quantisation(model: PreTrainedModel) -> None:
    """The weights are plain now; otherwise the saved config would announce GGUF to every loader."""
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
