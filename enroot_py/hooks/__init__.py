"""Pre-start hooks: built in and foreign."""
