"""The command srun: its options, and the client of one step."""
