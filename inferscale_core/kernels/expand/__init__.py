"""Expand: from the pieces that a step's copies are made of to a line of numbers for each token."""
