"""The stories: one module for each command."""
