"""Where images come from: registries, engines, layouts, archives, folders."""
