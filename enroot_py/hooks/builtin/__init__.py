"""The built-in hooks: one module each, a function `run(context) -> Edits`."""
