"""The parts of `reader.py`: metadata tables, the tree, unpacking."""
