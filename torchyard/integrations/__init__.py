"""Callbacks for frameworks: stop, resume, metrics and checkpoints, nothing else."""
