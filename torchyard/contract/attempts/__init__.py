"""The run directory of an attempt, what its program writes there, and why it ended."""
