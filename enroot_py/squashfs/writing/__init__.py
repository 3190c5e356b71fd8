"""The parts of `writer.py`: contents, metadata tables, the tree."""
