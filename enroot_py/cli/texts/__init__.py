"""Texts about the commands, made from the table: usage, man pages, completions."""
