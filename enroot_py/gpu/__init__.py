"""Discover devices and driver files, and plan their injection."""
