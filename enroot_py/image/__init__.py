"""Nouns of an image: references, digests, platforms, manifests, configs. Pure."""
