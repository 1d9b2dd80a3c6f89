"""From text to the tokens of a prompt, each piece tokenised once.

Imports no tokenizer library: it is handed a loaded one.
"""

from inferscale_core.prompt.format import ChatMessage, PromptFormat
from inferscale_core.prompt.plain_text import PlainTextEncoder
from inferscale_core.prompt.tokenizer import Tokenizer

__all__ = ["ChatMessage", "PlainTextEncoder", "PromptFormat", "Tokenizer"]
