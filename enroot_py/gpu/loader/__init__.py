"""The dynamic loader's files: its cache and the shared objects themselves."""
