"""The core of InferScale: facts, recipes, chunks, and how they reach the engine.

`docs/architecture.md` has the module table and says who may import whom.
"""

__version__ = "0.1.0"
