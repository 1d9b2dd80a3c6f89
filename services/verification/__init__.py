"""Whether a model can be served, how exactly, and what its chunks may be stored as."""
