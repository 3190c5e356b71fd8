"""Render sbatch scripts to Kubernetes."""
