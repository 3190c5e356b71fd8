"""Which fields a site profile and a manifest may have."""
