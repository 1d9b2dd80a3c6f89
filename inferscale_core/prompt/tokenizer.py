"""What is needed of a Hugging Face tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class AddedToken(Protocol):
    """A string that the tokenizer cuts out of any text before its model sees it."""

    content: str
    special: bool


class Tokenizer(Protocol):
    """A subset of transformers' `PreTrainedTokenizerFast`."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]: ...
    @property
    def bos_token_id(self) -> int | None: ...
    @property
    def unk_token_id(self) -> int | None: ...
    @property
    def chat_template(self) -> Any: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> Any: ...
