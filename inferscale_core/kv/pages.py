"""Pages of the arena: who holds which.

A free page holds only zeros, or is on the list that the next step zeroes before anything else.
"""

from __future__ import annotations


class PagePool:
    """Lends pages to holders and takes them back. A holder is one entry of the directory.

    Owned by the scheduler thread; not safe to share. Pages are numbered from 0.
    """

    def __init__(self, num_pages: int, page_tokens: int) -> None:
        assert num_pages > 0
        assert page_tokens > 0
        self.num_pages = num_pages
        self.page_tokens = page_tokens
        self._free = list(range(num_pages - 1, -1, -1))
        self._held: dict[int, tuple[int, ...]] = {}
        self._to_zero: list[int] = []

    @property
    def num_free(self) -> int:
        return len(self._free)

    def pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_tokens)

    def take(self, holder: int, num_tokens: int) -> tuple[int, ...] | None:
        """Pages for `num_tokens` tokens, or None when too few are free."""
        assert holder not in self._held, "a holder takes its pages once"
        count = self.pages_for(num_tokens)
        if count > len(self._free):
            return None
        pages = tuple(self._free.pop() for _ in range(count))
        self._held[holder] = pages
        return pages

    def give_back(self, holder: int) -> None:
        """Free the pages of `holder` and list them for zeroing."""
        pages = self._held.pop(holder)
        self._free.extend(reversed(pages))
        self._to_zero.extend(pages)

    def drain_to_zero(self) -> list[int]:
        """Pages freed since the last call. They must be zeroed before any is written again."""
        pages, self._to_zero = self._to_zero, []
        return pages

    @property
    def has_pages_to_zero(self) -> bool:
        return bool(self._to_zero)

    def check_conservation(self) -> None:
        """Every page is free or held by exactly one chunk."""
        seen = [*self._free, *(page for pages in self._held.values() for page in pages)]
        assert len(seen) == self.num_pages, f"{self.num_pages - len(seen)} pages are lost"
        assert len(set(seen)) == len(seen), "a page is held twice"
