"""Talk to registries and daemons."""
