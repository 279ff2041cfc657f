"""A warm process that imports next to nothing, for tests of its life and death: it is there in two seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
import os
from typing import Any

from tests.warm import START_S
from torchyard.contract.records import ProcessIdentity
from worker.engines.local import orphans
from worker.engines.local.warm.keeper import WarmProcess

PROGRAM = """
import os, signal, sys, threading
from worker.engines.local.warm import fork, preload, process
preload.MODULES = ("numpy", "torch")  # what each rank needs
{change}
process.main()
"""
_MODULE = "worker.engines.local.warm.process"
_start: Callable[..., ProcessIdentity] = orphans.start


@dataclass
class Light:
    """Replaces `orphans.start`. `change` is Python code that each warm process runs before it begins."""

    change: str = ""
    started: list[ProcessIdentity] = field(default_factory=list[ProcessIdentity])
    """The warm processes, in order."""

    def start(self, command: Sequence[str], **options: Any) -> ProcessIdentity:
        if _MODULE not in command:
            return _start(command, **options)
        place = command.index("-m")
        program = ["-c", PROGRAM.format(change=self.change)]
        self.started.append(_start([*command[:place], *program, *command[place + 2 :]], **options))
        return self.started[-1]

    def open(self) -> WarmProcess:
        """Waits until it is ready."""
        warm = WarmProcess({"PATH": os.environ["PATH"]})
        warm.open()
        warm.modules(wait_s=START_S)
        return warm
