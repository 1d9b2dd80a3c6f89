"""`python convert_gguf.py FILE.gguf FOLDER`: a GGUF file as plain bf16 safetensors with tokenizer.

Run as a process of its own: it holds the whole model in memory, more than once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

SAMPLE = "The notes below are what you know about the user."
MAX_TOKENS_PER_WORD = 2
"""Of the sample, whose words every vocabulary has whole."""


def convert(gguf: Path, folder: Path) -> None:
    """Raises ValueError for a tokenizer that transformers cannot read whole."""
    source, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    require_words(tokenizer)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.bfloat16)
    _forget_quantisation(model)
    model.save_pretrained(str(folder), safe_serialization=True)
    tokenizer.save_pretrained(str(folder))


def require_words(tokenizer: Any) -> None:
    """Some versions of transformers read the words of a GGUF file and lose how they are put
    together: the model then sees letters, and answers nonsense without any error."""
    ids = tokenizer.encode(SAMPLE, add_special_tokens=False)
    num_words = len(SAMPLE.split())
    if len(ids) > MAX_TOKENS_PER_WORD * num_words or tokenizer.decode(ids).strip() != SAMPLE:
        raise ValueError(
            f"transformers {transformers.__version__} cannot read the tokenizer of this file: "
            f"{len(ids)} tokens for {num_words} words. Another version may."
        )


def _forget_quantisation(model: PreTrainedModel) -> None:
    """The weights are plain now; otherwise the saved config would announce GGUF to every loader."""
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
