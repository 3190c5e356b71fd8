"""The small commands that hooks and scripts call: one module each, as for other operations."""
