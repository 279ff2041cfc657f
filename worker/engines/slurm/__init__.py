"""The engine of a Slurm partition: each attempt is one Slurm job, found by its name."""
