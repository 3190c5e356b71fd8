"""The SPANK plugin: building, installing, its settings and what is generated for its C."""
