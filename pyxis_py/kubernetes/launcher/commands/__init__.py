"""Slurm's commands inside a job."""
