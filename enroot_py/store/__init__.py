"""Blobs, finished images and containers on disk."""
