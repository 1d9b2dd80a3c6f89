"""Facts, recipes, plans and provenance: plain data and decisions, without I/O or tensors."""
