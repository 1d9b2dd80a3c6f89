"""What names files on disk, and hides a user's disk key on its way to the engine's ranks.

The secret is derived from the token that control and workers share, so it is on no disk of the
worker: names of files tell nobody which user a folder belongs to, not even whether a guess is
right. After the token has been changed the old files cannot be found, and the store starts empty.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from inferscale_core.ids import ChunkKey, UserScope
from inferscale_core.memory.disk_keys import DISK_KEY_BYTES, DiskKey

NAME_DIGITS = 32
NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class StoreSecret:
    """root: 32 bytes, from which the two uses derive keys of their own. Ranks are given it at their
    start, by a call that the engine does not log."""

    root: bytes = field(repr=False)
    _names: bytes = field(init=False, repr=False, compare=False)
    _transport: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", _derived(self.root, b"names"))
        object.__setattr__(self, "_transport", _derived(self.root, b"transport"))

    @classmethod
    def from_token(cls, token: str) -> StoreSecret:
        """token: `worker.internal_token`."""
        return cls(_derived(token.encode(), b"root"))

    def name(self, subject: UserScope | ChunkKey | str) -> str:
        """The file name that stands for a scope, a chunk or a store: 32 hex digits."""
        digest = hmac.new(self._names, subject.encode(), hashlib.sha256)
        return digest.hexdigest()[:NAME_DIGITS]

    def seal(self, scope: UserScope, disk_key: DiskKey) -> str:
        """The key as text for the engine, which logs its requests when it dies."""
        nonce = os.urandom(NONCE_BYTES)
        cipher = AESGCM(self._transport)
        sealed = cipher.encrypt(nonce, disk_key.secret, _aad(scope, disk_key.kv_epoch))
        return f"{disk_key.kv_epoch}.{(nonce + sealed).hex()}"

    def unseal(self, scope: UserScope, text: str) -> DiskKey:
        """Raises ValueError for what `seal` did not write for this scope."""
        epoch, _, digits = text.partition(".")
        try:
            kv_epoch, sealed = int(epoch), bytes.fromhex(digits)
            nonce, body = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
            secret = AESGCM(self._transport).decrypt(nonce, body, _aad(scope, kv_epoch))
        except (ValueError, InvalidTag) as exc:
            raise ValueError("not a disk key that was sealed for this scope") from exc
        return DiskKey(kv_epoch, secret)


def _derived(material: bytes, use: bytes) -> bytes:
    info = b"inferscale disk tier: " + use
    return HKDF(algorithm=SHA256(), length=DISK_KEY_BYTES, salt=None, info=info).derive(material)


def _aad(scope: UserScope, kv_epoch: int) -> bytes:
    return f"{scope} {kv_epoch}".encode()
