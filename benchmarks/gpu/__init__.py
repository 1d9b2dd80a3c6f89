"""Benchmarks that need a GPU. Correctness is checked before anything is timed."""
