"""The signal at which a rank appends the stacks of its threads to its file in the run directory."""

import signal

STACKS_SIGNAL = signal.SIGRTMAX
"""Not SIGUSR1: scripts have handlers of their own for it. Where they have none, it writes the stacks into the log."""
