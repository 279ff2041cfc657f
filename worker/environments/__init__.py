"""Environments of the host in which jobs may run: venvs and conda environments. They are read, never run."""
