"""Measurements: programs that append rows to `results/`, and `report.py` that shows the rows."""
