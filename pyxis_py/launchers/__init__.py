"""Command lines in, tasks inside containers out."""
