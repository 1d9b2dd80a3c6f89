"""Capture: the engine's keys and values to rows that can serve at any position."""
