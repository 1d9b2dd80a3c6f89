"""Chunks as tensors and as bookkeeping: rotation, arena, directory.

`rope` and `storage` need torch; `pages` and `directory` are plain decisions of the scheduler side.
"""
