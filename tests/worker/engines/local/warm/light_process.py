"""A warm process that imports very little, for tests of its start and its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
import os
from typing import Any

from tests.warm import START_S
from torchyard.contract.attempts.records import ProcessIdentity
from worker.engines.local.warm.manager import WarmProcess
from worker.host import orphans

PROGRAM = """
import os, signal, sys, threading
from types import SimpleNamespace
from worker.engines.local.warm import preload, process
from worker.host import forks
preload.MODULES = ("torchyard.run.rank",)  # every rank needs it
generator = SimpleNamespace(seed=int)
calls = {{"set_num_threads": int, "default_generator": generator}}
sys.modules["torch"] = SimpleNamespace(**calls, cuda=SimpleNamespace(is_initialized=bool))
sys.modules["numpy"] = SimpleNamespace(random=generator)
{change}
process.main()
"""
"""What stands in for torch and numpy, whose import takes seconds, has what a warm process and a rank call of them."""
_MODULE = "worker.engines.local.warm.process"
_start: Callable[..., ProcessIdentity] = orphans.start


@dataclass
class LightWarmProcess:
    """Its `start` replaces `orphans.start`. `change`: Python code that each warm process runs first."""

    change: str = ""
    started: list[ProcessIdentity] = field(default_factory=list[ProcessIdentity])
    """The warm processes in the order of their starts."""

    def start(self, command: Sequence[str], **options: Any) -> ProcessIdentity:
        if _MODULE not in command:
            return _start(command, **options)
        place = command.index("-m")
        program = ["-c", PROGRAM.format(change=self.change)]
        self.started.append(_start([*command[:place], *program, *command[place + 2 :]], **options))
        return self.started[-1]

    def open(self) -> WarmProcess:
        """Starts a warm process and waits until it is ready."""
        warm = WarmProcess({"PATH": os.environ["PATH"]})
        warm.open()
        warm.loaded_modules(wait_s=START_S)
        return warm
