#!/bin/bash
#SBATCH --job-name=variables
#SBATCH --time=10
#SBATCH --output=%x-%j.out

# Keeps the variables of the batch script, of a step as wide as the job, and of one with one task;
# elements of an array keep theirs apart.
element=$SLURM_ARRAY_TASK_ID
env -0 > ${element}batch.env
export element
srun bash -c 'env -0 > ${element}step.$SLURM_PROCID.env'
srun -N1 -n1 bash -c 'env -0 > ${element}narrow.$SLURM_PROCID.env'
