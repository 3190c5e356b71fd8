"""The site profile: what no script says."""
