"""What advice is derived from: the job as its views show it, and what else is stored about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
import re

from api.advice import output
from torchyard.contract.advice import EvidenceKind, EvidenceView
from torchyard.contract.cluster.views import DeviceView, WorkerView
from torchyard.contract.jobs.views import ErrorView, JobView
from torchyard.contract.recipes import ImageDataConfig, SegmentationDataConfig
from torchyard.contract.recipes.script import Script
from torchyard.contract.recipes.training import Recipe
from torchyard.contract.telemetry.views import LogLine
from torchyard.contract.wire.text import headline
from torchyard.host import terminal

REQUIREMENTS = "requirements.txt"
_NO_MODULE = re.compile(r"(?:^|: )(?:ModuleNotFoundError: |No module named (?!\S*\.__main__\b))")
"""How Python says that a module is missing, of an import and of `-m`."""
_MODULE = re.compile(r"No module named '?(?P<name>[A-Za-z_][\w.]{0,200})")
_PACKAGES = "/site-packages/"
_LONG_FOLDER = 40
"""Characters of the folder of an environment that would fill the line."""
_MOST_TEXT = 500
"""Characters of one text of the job, at most."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of one job at one moment."""

    job: JobView
    failure: ErrorView | None = None
    """How the job failed, or the attempt after which it waits for the next one."""
    lines: Sequence[LogLine] = ()
    """The last lines of that attempt: of the rank that failed, or of the launcher and all ranks. Oldest first."""
    workers: Sequence[WorkerView] = ()
    """The workers that the judgement is about, with who holds their devices: all if the job waits, its own if it runs.
    """
    silence: timedelta | None = None
    """Time since the running attempt last wrote to its event log; None before its first line."""
    checkpoint_step: int | None = None
    """The step of the newest checkpoint; None without any."""
    has_requirements: bool = False
    """Whether a module is missing and the bundle of the code has a requirements.txt."""
    module_folder: str | None = None
    """The folder below the root of the code in which the missing module lies; None if it lies in none."""

    @property
    def recipe(self) -> Recipe | None:
        """The configuration of a recipe; None for a script."""
        config = self.job.spec.config
        return config if isinstance(config, Recipe) else None

    @property
    def script(self) -> Script | None:
        """The configuration of a script; None for a recipe."""
        config = self.job.spec.config
        return config if isinstance(config, Script) else None

    @property
    def misses_module(self) -> bool:
        """Whether the program failed because a module is not installed."""
        return any(_NO_MODULE.search(text) for text in self._said())

    @property
    def missing_module(self) -> str | None:
        """The name of the module that the program misses, as `a.b`; None if it misses none, or does not name it."""
        named = (_MODULE.search(text) for text in self._said() if _NO_MODULE.search(text))
        return next((match["name"] for match in named if match is not None), None)

    @property
    def loaders(self) -> ImageDataConfig | SegmentationDataConfig | None:
        """The part of the configuration that sets the number of loader processes; None if there is none."""
        data = None if self.recipe is None else self.recipe.data
        return data if isinstance(data, ImageDataConfig | SegmentationDataConfig) else None

    @property
    def held(self) -> list[DeviceView]:
        """The devices that the job holds, as workers that are not lost have reported them."""
        alive = [worker for worker in self.workers if worker.state != "lost"]
        return [device for worker in alive for device in worker.devices if device.job_id == self.job.id]

    def _said(self) -> tuple[str, ...]:
        """Returns the texts that say most of how the job failed."""
        if self.failure is None:
            return ()
        line = output.decisive_line(self.failure, self.lines)
        return headline(self.failure.message), *(() if line is None else (line.text.strip(),))


def shown(text: str) -> str:
    """Returns a text of the job on one line of bounded length, without control characters."""
    line = _without_long_folder(terminal.plain(text[: 4 * _MOST_TEXT]).strip())
    return line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 1]}…"


def _without_long_folder(line: str) -> str:
    """Returns a line without the folder of an environment before the first file of a package."""
    at = line.find(_PACKAGES)
    start = 1 + max(line.rfind(before, 0, max(0, at)) for before in " '\"([")
    return line if at - start < _LONG_FOLDER else f"{line[:start]}…{line[at:]}"


def evidence(kind: EvidenceKind, text: str, *, line: int | None = None, rank: int | None = None) -> EvidenceView:
    """Returns evidence whose text is safe to show."""
    return EvidenceView(kind=kind, text=shown(text), line=line, rank=rank)


def percent(share: float) -> str:
    """Formats a share of 0…1: `61%`."""
    return f"{share:.0%}"
