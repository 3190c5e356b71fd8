"""A step's container: what is wanted, how it is made, kept, and cleaned up behind."""
