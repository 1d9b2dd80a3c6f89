"""How good answers over injected facts are: asked of a real engine, compared with text mode.

A data set is prepared once (facts, turns, questions and their vectors in one file), asked through
one of two drivers, and reported from the scores that each run leaves behind.
"""
