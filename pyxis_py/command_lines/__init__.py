"""Command lines and scripts of srun and sbatch, read as Slurm reads them."""
