"""Flatten layers into one tree."""
