"""Access to a cluster: a few requests, through kubectl or the kubernetes package."""
