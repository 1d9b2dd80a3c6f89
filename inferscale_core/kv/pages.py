"""Pages of a tier: who holds which.

A free page holds only zeros, or is on the list that is zeroed before anything is written there.
"""

from __future__ import annotations

import heapq
from typing import Protocol


class Pages(Protocol):
    """Room of one tier. A holder is one place of the directory, and takes its pages once."""

    page_tokens: int
    num_pages: int

    @property
    def num_free(self) -> int: ...

    def pages_for(self, num_tokens: int) -> int: ...

    def take(self, holder: int, num_tokens: int) -> tuple[int, ...] | None:
        """Pages for `num_tokens` tokens, or None when too few are free."""

    def give_back(self, holder: int) -> None:
        """Free the pages of `holder`."""

    def check_conservation(self) -> None:
        """Every page is free or held by exactly one holder."""


class PagePool:
    """Numbered pages of memory. Lends the lowest free ones, so that chunks lie in few pieces.

    Owned by the scheduler thread; not safe to share. Pages are numbered from 0.
    """

    def __init__(self, num_pages: int, page_tokens: int) -> None:
        assert num_pages > 0
        assert page_tokens > 0
        self.num_pages = num_pages
        self.page_tokens = page_tokens
        self._returned: list[int] = []
        """A heap of the pages that were lent before and are free. Those from `_first_new` on never
        were: lending them takes no heap."""
        self._first_new = 0
        self._held: dict[int, tuple[int, ...]] = {}
        self._to_zero: list[int] = []

    @property
    def num_free(self) -> int:
        return len(self._returned) + self.num_pages - self._first_new

    def pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_tokens)

    def take(self, holder: int, num_tokens: int) -> tuple[int, ...] | None:
        assert holder not in self._held, "a holder takes its pages once"
        count = self.pages_for(num_tokens)
        if count > self.num_free:
            return None
        returned = self._returned
        lent = [heapq.heappop(returned) for _ in range(min(count, len(returned)))]
        first_new = self._first_new
        self._first_new += count - len(lent)
        pages = (*lent, *range(first_new, self._first_new))
        self._held[holder] = pages
        return pages

    def give_back(self, holder: int) -> None:
        """Also lists the pages for zeroing."""
        pages = self._held.pop(holder)
        for page in pages:
            heapq.heappush(self._returned, page)
        self._to_zero.extend(pages)

    def drain_to_zero(self) -> list[int]:
        """Pages freed since the last call. They must be zeroed before any is written again."""
        pages, self._to_zero = self._to_zero, []
        return pages

    @property
    def has_pages_to_zero(self) -> bool:
        return bool(self._to_zero)

    def check_conservation(self) -> None:
        free = [*self._returned, *range(self._first_new, self.num_pages)]
        seen = [*free, *(page for pages in self._held.values() for page in pages)]
        assert len(seen) == self.num_pages, f"{self.num_pages - len(seen)} pages are lost"
        assert len(set(seen)) == len(seen), "a page is held twice"


class PageBudget:
    """Counts pages that have no number: the disk, where a chunk is a file.

    Owned by the scheduler thread; not safe to share.
    """

    def __init__(self, num_pages: int, page_tokens: int) -> None:
        assert num_pages > 0
        assert page_tokens > 0
        self.num_pages = num_pages
        self.page_tokens = page_tokens
        self._held: dict[int, int] = {}
        self._num_held = 0

    @property
    def num_free(self) -> int:
        return self.num_pages - self._num_held

    def pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_tokens)

    def take(self, holder: int, num_tokens: int) -> tuple[int, ...] | None:
        assert holder not in self._held, "a holder takes its pages once"
        count = self.pages_for(num_tokens)
        if count > self.num_free:
            return None
        self._held[holder] = count
        self._num_held += count
        return ()

    def give_back(self, holder: int) -> None:
        self._num_held -= self._held.pop(holder)

    def check_conservation(self) -> None:
        assert sum(self._held.values()) == self._num_held, "the count disagrees with the holders"
        assert 0 <= self._num_held <= self.num_pages, "more pages are held than there are"
