"""What a warm process imports before it forks, and what must be true of it afterwards."""

import contextlib
import gc
import importlib
from pathlib import Path
import sys

from torchyard.contract import collector, recipes
from worker.engines.local.warm.fork import OURS
from worker.engines.local.warm.memory import release_file_pages

MODULES = (
    "numpy",
    "numpy.ctypeslib",
    "torch",
    "torch._dynamo",  # the first optimizer and the first DistributedDataParallel import it
    "torch.distributed",
    "trainer.torchrun",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch.utils.serialization.config",
    "torchvision.models",
    "safetensors.torch",
    "trainer.__main__",
    *(f"trainer.recipes.{name}" for name in recipes.MODULES),
)
"""The recipes, and what every training needs. Not transformers, which is imported by those who ask for it."""


class Unfit(Exception):
    """This process must not be forked."""


def load() -> frozenset[str]:
    """Imports them, and answers the top-level names of all that this loaded besides our own. Raises Unfit."""
    before = _top_level()
    with collector.paused():  # what is frozen at its end, no collection in a child touches, and so copies
        for name in MODULES:
            importlib.import_module(name)
        gc.collect()
    release_file_pages()
    check()
    return _top_level() - before - OURS


def check() -> None:
    """Checks that this process can be forked: it has one thread (a fork copies no other, but copies locks that others
    hold), and has not initialised CUDA, which no fork can use.

    Raises Unfit.
    """
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise Unfit(f"the warm process has {threads} threads")
    if sys.modules["torch"].cuda.is_initialized():
        raise Unfit("the warm process has a CUDA context")
    devices = [target for target in _descriptors() if target.startswith("/dev/nvidia")]
    if devices:
        raise Unfit(f"the warm process has opened {', '.join(devices)}")


def _top_level() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in sys.modules)


def _descriptors() -> list[str]:
    found: list[str] = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.append(str(path.readlink()))
    return found
