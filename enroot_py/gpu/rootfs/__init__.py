"""Put an injection into a mounted root filesystem: look, place, carry out, undo."""
