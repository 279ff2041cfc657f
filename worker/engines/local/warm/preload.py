"""Imports what a warm process needs before it forks, and checks that it can be forked."""

import contextlib
import gc
import importlib
from pathlib import Path
import sys

from torchyard.contract import recipes
from torchyard.host import collector
from worker.engines.local.launchers.fork import OURS
from worker.engines.local.launchers.rehearsal import rehearse
from worker.engines.local.warm.memory import release_file_pages

MODULES = (
    "torchyard.run.rank",
    "numpy",
    "numpy.ctypeslib",
    "numpy.ma",  # the first numpy.unique imports it
    "encodings.cp437",  # the names in an npz file need it
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
"""The recipes, and what every training needs. Not transformers, which only some jobs import."""


class NotForkable(Exception):
    """This process must not be forked."""


def load() -> frozenset[str]:
    """Imports `MODULES`. Returns the top-level modules that this loaded, without our own. Raises NotForkable."""
    before = _top_level()
    with (
        collector.paused()
    ):  # its end freezes all objects: a collection in a child then neither touches nor copies them
        for name in MODULES:
            importlib.import_module(name)
        rehearse()
        gc.collect()
    release_file_pages()
    check()
    return _top_level() - before - OURS


def check() -> None:
    """Checks that this process can be forked. Raises NotForkable.

    It must have one thread: a fork copies no other thread, but the locks that others hold. And it must not have
    initialised CUDA, which does not work after a fork.
    """
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise NotForkable(f"the warm process has {threads} threads")
    if sys.modules["torch"].cuda.is_initialized():
        raise NotForkable("the warm process has a CUDA context")
    devices = [target for target in _descriptors() if target.startswith("/dev/nvidia")]
    if devices:
        raise NotForkable(f"the warm process has opened {', '.join(devices)}")


def _top_level() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in sys.modules)


def _descriptors() -> list[str]:
    descriptors: list[str] = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was the descriptor of the listing itself
            descriptors.append(str(path.readlink()))
    return descriptors
