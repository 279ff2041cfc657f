"""Use this in a training program: log metrics, save checkpoints, resume, and stop in time.

Call `torchyard.init` once on every rank. Outside the service the same calls do nothing, so the program also runs alone.

Example:
    >>> run = torchyard.init()
    >>> first = 1 if (state := run.resume()) is None else state["step"] + 1
    >>> for step in range(first, 4):
    ...     run.log({"train/loss": 1 / step}, step=step)
    ...     if run.should_stop():
    ...         break
    >>> run.save_checkpoint({"step": step}, step=step)
"""

from torchyard.run.context import Run
from torchyard.run.current import init

__all__ = ["Run", "init"]
