"""The pyxis commands."""
