"""Carry a start plan out."""
