"""What a script asks for: sbatch's options and values, read into one job specification."""
