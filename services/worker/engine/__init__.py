"""The engine behind one small protocol, and what it reports about chunks."""
