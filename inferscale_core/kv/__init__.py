"""Chunks as tensors and as bookkeeping: rotation, arena, directory.

`rope`, `rows`, `quantise`, `cache_codes` and `storage` need torch; `pages`, `directory` and what it
decides by are plain decisions of the scheduler side.
"""
