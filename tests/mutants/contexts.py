"""Which tests run which lines of the product, in the process of pytest, and what each test costs.

`python -m tests.mutants record` makes it with coverage.py: each test is a context of its own.
"""

from collections.abc import Generator
from dataclasses import dataclass
import json
import os
from pathlib import Path

from coverage import Coverage, CoverageData
import pytest

from tests.mutants.sources import ROOT, SEARCHED


class Recorder:
    """A plugin of pytest that records lines and costs in `folder`, under the name of its process."""

    def __init__(self, folder: Path, *, name: str) -> None:
        self._costs: dict[str, float] = {}
        self._file = folder / f"costs.{name}.json"
        self._coverage = Coverage(data_file=folder / f"lines.{name}", source=list(SEARCHED), config_file=False)

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        before = _used_s()
        result = yield
        self._costs[item.nodeid] = _used_s() - before
        self._coverage.switch_context("")
        return result

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        self._file.write_text(json.dumps(self._costs))


@dataclass(frozen=True)
class Contexts:
    """What a `Recorder` left."""

    tests: dict[Path, dict[int, list[str]]]
    """The tests that run a line of a module, by the module's path from the root of the tree."""
    costs: dict[str, float]
    """Processor seconds of each test."""

    def of(self, module: Path, line: int) -> list[str]:
        """Returns the tests that run this line."""
        return self.tests.get(module, {}).get(line, [])


def read(folder: Path, *, root: Path = ROOT) -> Contexts:
    """Returns what was recorded in a folder, of the tree at `root`."""
    tests: dict[Path, dict[int, list[str]]] = {}
    for file in sorted(folder.glob("lines.*")):
        data = CoverageData(basename=str(file))
        data.read()
        for name in data.measured_files():
            path = Path(name)
            if not path.is_relative_to(root):
                continue
            lines = tests.setdefault(path.relative_to(root), {})
            for line, contexts in data.contexts_by_lineno(name).items():
                lines.setdefault(line, []).extend(context for context in contexts if context)
    costs: dict[str, float] = {}
    for file in folder.glob("costs.*.json"):
        costs |= json.loads(file.read_text())
    return Contexts(tests, costs)


def _used_s() -> float:
    return sum(os.times()[:4])
