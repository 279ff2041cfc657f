"""The signals at which a rank shows what it does: it writes that into the run directory."""

import signal

STACKS_SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGUSR1)  # ranks run on Linux, which has it
"""The stacks of its threads. Not SIGUSR1: scripts have handlers of their own for it. Where they have none, it writes
the stacks into the log."""
COLLECTIVES_SIGNAL = getattr(signal, "SIGRTMIN", signal.SIGUSR2)
"""Its collectives, as PyTorch's flight recorder knows them."""
