"""Generated from `proto` by scripts/generate_proto.py. Not edited by hand."""
