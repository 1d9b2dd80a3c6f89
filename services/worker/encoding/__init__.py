"""Encoding: one chunk through the engine, and all chunks of one user in waves."""
