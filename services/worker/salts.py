"""Who may share cached blocks with whom.

The engine's prefix cache serves a request from blocks of another one with the same tokens and the
same salt. Blocks behind injected chunks are not what prefill gives, so injected and text requests
never share; nor do users, nor one user before and after a delete.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from inferscale_core.ids import ModelRevision, RecipeHash, UserScope


class CacheSalts:
    """The salts of one worker. Its secret lives as long as the engine's cache does."""

    def __init__(self, model_revision: ModelRevision, recipe_hash: RecipeHash) -> None:
        self._secret = secrets.token_bytes(32)
        self._model_revision = model_revision
        self._recipe_hash = recipe_hash

    def shared(
        self,
        scope: UserScope,
        *,
        mode: str,
        kv_epoch: int,
        num_published: int,
        num_text_facts: int = 0,
    ) -> str:
        """The same for requests that may serve each other. mode: "injected" or "text".

        num_text_facts: best facts that are prefilled beside an injection, and may not be served
        from blocks where they were injected.
        num_published: rises with every chunk of the user. A fact that was prefilled and is
        injected now must not be served from the blocks of before.
        """
        parts = (
            scope,
            self._model_revision,
            self._recipe_hash,
            mode,
            str(kv_epoch),
            str(num_published),
            str(num_text_facts),
        )
        message = b"".join(
            len(part.encode()).to_bytes(4, "little") + part.encode() for part in parts
        )
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()

    @staticmethod
    def once() -> str:
        """A salt that no other request has: nothing cached before serves it."""
        return secrets.token_hex(32)
