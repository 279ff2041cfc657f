"""Environments of the host in which jobs may run: venvs and conda environments, read as data and never by running them."""
