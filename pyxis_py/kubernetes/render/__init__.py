"""The objects of each target, checked and printed."""
