"""The folder of one rank's store: whose it is, and what it holds.

    disk_dir/<model revision>/<recipe hash>/<rank>of<ranks>/about
                                                           /lock
                                                           /writing/<chunk>.<number>
                                                           /<user>/<chunk>

User and chunk are names that `StoreSecret` gives. `about` says what the rows of the folder mean; a
store that finds another meaning there begins anew. One process at a time holds `lock`; the kernel
lets go of it when that process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from inferscale_core.errors import Unavailable
from inferscale_core.ids import ModelRevision, RecipeHash
from inferscale_core.kv.disk_secret import NAME_DIGITS, StoreSecret

ABOUT = "about"
LOCK = "lock"
WRITING = "writing"
_FORMAT = "inferscale chunks 1"
_LOCK_RETRY_S = 0.1
_NAME = re.compile(rf"[0-9a-f]{{{NAME_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """used_ns: when it was last used, as the file's own time says."""

    user: str
    name: str
    num_bytes: int
    used_ns: int


def rank_folder(
    disk_dir: Path,
    model_revision: ModelRevision,
    recipe_hash: RecipeHash,
    rank: int,
    num_ranks: int,
) -> Path:
    return disk_dir / quote(model_revision, safe="@") / recipe_hash / f"{rank}of{num_ranks}"


class StoreFolder:
    """Held from the construction to `close`."""

    def __init__(self, root: Path, secret: StoreSecret, layout: str, *, lock_wait_s: float) -> None:
        """Raises Unavailable when another process holds the folder for longer than that."""
        self.root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _locked(root, lock_wait_s)
        about = {"format": _FORMAT, "secret": secret.name("store"), "layout": layout}
        if _about(root) != about:
            self._begin_anew(about)

    def close(self) -> None:
        os.close(self._lock)

    def path(self, user: str, name: str) -> Path:
        return self.root / user / name

    def temporary(self, name: str, number: int) -> Path:
        """Where a record is written before it gets its place. number: another one each time."""
        return self.root / WRITING / f"{name}.{number}"

    def place(self, temporary: Path, user: str, name: str) -> None:
        """Give a written file its place, whole or not at all."""
        (self.root / user).mkdir(mode=0o700, exist_ok=True)
        temporary.replace(self.path(user, name))

    def scan(self) -> Iterator[FoundFile]:
        """Every record. What a process left half written is removed."""
        shutil.rmtree(self.root / WRITING, ignore_errors=True)
        (self.root / WRITING).mkdir(mode=0o700, exist_ok=True)
        for user in _folders(self.root):
            with os.scandir(user.path) as entries:
                for entry in entries:
                    if _NAME.fullmatch(entry.name):
                        status = entry.stat(follow_symlinks=False)
                        yield FoundFile(user.name, entry.name, status.st_size, status.st_mtime_ns)
            self.drop_if_empty(user.name)

    def drop_if_empty(self, user: str) -> None:
        """A user's folder goes with its last record."""
        with contextlib.suppress(OSError):
            (self.root / user).rmdir()

    def _begin_anew(self, about: dict[str, str]) -> None:
        """`about` is written last, so a process that ends in here is followed by another try."""
        (self.root / ABOUT).unlink(missing_ok=True)
        for user in _folders(self.root):
            shutil.rmtree(user.path)
        fresh = self.root / f"{ABOUT}.new"
        fresh.write_text(json.dumps(about))
        fresh.replace(self.root / ABOUT)


def remove_other_stores(disk_dir: Path, own: Path) -> int:
    """Remove the stores of other models, recipes and numbers of ranks; returns how many.

    They could never be read again, and would not be counted. Only folders with an `about` of ours
    are touched, and none that a process holds. own: the folder of one rank of the store that stays.
    """
    num_removed = 0
    for about in disk_dir.glob(f"*/*/*of*/{ABOUT}"):
        folder = about.parent
        is_sibling = folder.parent == own.parent and _num_ranks(folder) == _num_ranks(own)
        if is_sibling or (_about(folder) or {}).get("format") != _FORMAT:
            continue
        try:
            lock = _locked(folder, 0.0)
        except Unavailable:
            continue
        shutil.rmtree(folder)
        os.close(lock)
        num_removed += 1
        with contextlib.suppress(OSError):  # Others may have stores beside it.
            folder.parent.rmdir()
            folder.parent.parent.rmdir()
    return num_removed


def _locked(root: Path, wait_s: float) -> int:
    """A worker that was killed lets go of it a moment later than its successor wants it."""
    lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError as exc:
            if time.monotonic() >= deadline:
                os.close(lock)
                raise Unavailable(f"another process uses the disk tier in {root}") from exc
        time.sleep(_LOCK_RETRY_S)


def _about(root: Path) -> dict[str, str] | None:
    try:
        found = json.loads((root / ABOUT).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _folders(root: Path) -> list[os.DirEntry[str]]:
    with os.scandir(root) as entries:
        return [e for e in entries if _NAME.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]


def _num_ranks(folder: Path) -> str:
    return folder.name.partition("of")[2]
