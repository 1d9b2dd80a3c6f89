"""Capture: the engine's keys and values to rows of the arena."""
