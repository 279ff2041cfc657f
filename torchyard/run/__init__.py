"""Inside a training process: logging, checkpoints, resume, and the agreed stop."""

from torchyard.run.context import Run
from torchyard.run.current import init

__all__ = ["Run", "init"]
