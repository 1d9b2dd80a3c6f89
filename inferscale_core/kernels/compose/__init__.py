"""Compose: stored rows to keys and values at their serving positions."""
