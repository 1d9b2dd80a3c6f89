"""Small real tokenizers of the kinds that models use, trained on the spot, with chat templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

_CORPUS = (
    "You are a helpful assistant. The notes below are what you know about the user.",
    "Answer from them when they help.\n\nNotes:\n",
    "End of notes.\nOn 3 May 2026: Robin keeps a spare key at the office.\n",
    "user: system: assistant: where is the spare key? the alarm was serviced in May",
)

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

INSTRUCT = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('no system role here') }}"
    "{% elif message['role'] == 'user' %}[INST] {{ message['content'] | trim }} [/INST]"
    "{% else %} {{ message['content'] }}</s>{% endif %}{% endfor %}"
)
"""Takes no system message."""

SYSTEM_LAST = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}"
    "{% set rest = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
    "{{ bos_token }}{% for message in rest %}{% if message['role'] == 'user' %}"
    "[INST] {% if loop.last and system %}{{ system }}\n\n{% endif %}"
    "{{ message['content'] }} [/INST]"
    "{% else %} {{ message['content'] }}</s>{% endif %}{% endfor %}"
)
"""Moves the system message to the last user message, so what stands before it varies."""

DATED = "<|im_start|>system\nToday: {{ strftime_now('%d %b %Y') }} {{ date_string }}\n" + CHATML


def byte_level(template: str | None = CHATML, *, vocab_size: int = 500) -> Any:
    """Byte-level BPE, as in Qwen and Llama 3; `<tool_call>` is an added token but not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|bos|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False), AddedToken("\n\n\n")])
    return _wrap(
        tokenizer,
        template,
        pad_token="<|pad|>",
        bos_token="<|bos|>",
        eos_token="<|im_end|>",
    )


def sentence_piece(template: str | None = INSTRUCT) -> Any:
    """BPE that puts a space before the first word and falls back to bytes, as in Llama 2."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>", "<s>", "</s>", *bytes_], show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    # The bytes are pieces of the vocabulary, no added tokens.
    return _wrap(
        _without_added(tokenizer, bytes_),
        template,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )


def unigram(template: str | None = CHATML) -> Any:
    """Unigram that folds wide letters, with its control strings in the vocabulary as well."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.UnigramTrainer(
        vocab_size=300,
        special_tokens=["<unk>", "<s>", "</s>"],
        unk_token="<unk>",
        initial_alphabet=[chr(code) for code in range(33, 127)],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<|im_start|>", normalized=True), AddedToken("<|im_end|>")])
    return _wrap(tokenizer, template, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def save_with(tokenizer: Any, folder: Path) -> None:
    """Put the tokenizer beside a model's config and weights."""
    tokenizer.save_pretrained(folder)


def _wrap(tokenizer: Tokenizer, template: str | None, **tokens: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    wrapped.chat_template = template
    return wrapped


def _without_added(tokenizer: Tokenizer, contents: list[str]) -> Tokenizer:
    import json

    body = json.loads(tokenizer.to_str())
    body["added_tokens"] = [t for t in body["added_tokens"] if t["content"] not in set(contents)]
    return Tokenizer.from_str(json.dumps(body))
