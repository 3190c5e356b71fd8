"""Decide what a start does, before anything is done. Pure."""
