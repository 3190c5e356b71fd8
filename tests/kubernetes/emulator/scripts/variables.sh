#!/bin/bash
#SBATCH --job-name=variables
#SBATCH --time=10
#SBATCH --output=%x-%j.out

# Keeps the variables of the batch script, of a step as wide as the job, and of one with one task.
env -0 > batch.env
srun bash -c 'env -0 > step.$SLURM_PROCID.env'
srun -N1 -n1 bash -c 'env -0 > narrow.$SLURM_PROCID.env'
