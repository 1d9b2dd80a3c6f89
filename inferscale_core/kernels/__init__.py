"""Operations on chunks and paged caches. One folder each; `reference.py` says what it computes."""
