"""Runs the tests of one mutant after the other, each in a process forked from one that has collected all tests."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
import ctypes
from dataclasses import replace
import importlib
import os
from pathlib import Path
import pickle
import resource
import tempfile
import traceback
from types import FunctionType
from typing import IO, Any

import psutil
import pytest

from tests.mutants import mutations, sources
from tests.mutants.contexts import Contexts
from tests.mutants.drawn import Mutant

_PR_SET_CHILD_SUBREAPER = 36
_ENDLESS_CPU_S = 120
"""A process that has used this much runs a loop that a mutation made endless."""
_MOST_S = 12.0
"""A mutant that tests of this much processor time do not notice has survived."""


class Trying:
    """A plugin of pytest that tries the mutants instead of running the tests. `results` are its answer."""

    def __init__(self, mutants: Sequence[Mutant], contexts: Contexts, *, jobs: int, say: Callable[[str], None]) -> None:
        self._mutants = mutants
        self._contexts = contexts
        self._jobs = jobs
        self._say = say
        self._loaded: dict[tuple[str, str], list[FunctionType]] = {}
        self.results: list[Mutant] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        self._loaded = self._loaded_functions()
        waiting = list(enumerate(self._mutants))
        running: dict[int, tuple[int, IO[bytes]]] = {}
        done: dict[int, Mutant] = {}
        while waiting or running:
            while waiting and len(running) < self._jobs:
                index, mutant = waiting.pop(0)
                pid, file = _forked(lambda answer, mutant=mutant: answer(self._tried(session, items, mutant)))
                running[pid] = (index, file)
            pid, _ = os.wait()
            if pid in running:
                index, file = running.pop(pid)
                done[index] = _answer(file) or replace(self._mutants[index], verdict="broken")
                self._say(f"{len(done)}/{len(self._mutants)} {_line(done[index])}")
        self.results = [done[index] for index in range(len(self._mutants))]
        return True

    def _tried(self, session: pytest.Session, items: dict[str, pytest.Item], mutant: Mutant) -> Mutant:
        module = sources.find(mutant.mutation, module=Path(mutant.module))
        if module is None:
            return replace(mutant, verdict="gone")
        line = mutations.line(sources.functions_of(module)[mutant.mutation.function], mutant.mutation)
        names = [*([mutant.killer] if mutant.killer else []), *self._tests(module, line or 0)]
        chosen = [items[name] for name in dict.fromkeys(found for name in names for found in _present(name, items))]

        codes = sources.with_inner(sources.code(module, mutant.mutation))
        forms = [
            (function, code)
            for code in codes  # the inner ones, too: a function that ran at an import has made them already
            for function in self._loaded.get((str(sources.ROOT / module), code.co_qualname), [])
            if function.__code__.co_freevars == code.co_freevars
        ]

        def mutated(running: Callable[[Any], None]) -> None:
            for function, code in forms:
                function.__code__ = code
            _run(session, chosen, running)

        while chosen and (killer := _failed(mutated)) is not None:
            if _failed(lambda running, killer=killer: _run(session, [items[killer]], running)) is None:
                return replace(mutant, module=str(module), verdict="killed", killer=killer)
            chosen = [item for item in chosen if item.nodeid != killer]  # it fails without the mutation, too
        return replace(mutant, module=str(module), verdict="survived", killer=None)

    def _loaded_functions(self) -> dict[tuple[str, str], list[FunctionType]]:
        found = (sources.find(mutant.mutation, module=Path(mutant.module)) for mutant in self._mutants)
        for module in {module for module in found if module is not None}:
            importlib.import_module(".".join(module.with_suffix("").parts).removesuffix(".__init__"))
        return sources.loaded()

    def _tests(self, module: Path, line: int) -> list[str]:
        """Returns the tests of a line: those of its own module first, then the cheapest, up to a sum of their costs."""
        cost = self._contexts.costs
        own = f"test_{module.stem}"
        ordered = sorted(self._contexts.of(module, line), key=lambda name: (own not in name, cost.get(name, 0.0)))
        chosen: list[str] = []
        spent_s = 0.0
        for name in ordered:
            spent_s += cost.get(name, 0.0)
            if chosen and spent_s > _MOST_S:
                break
            chosen.append(name)
        return chosen


def _present(name: str, items: Mapping[str, pytest.Item]) -> list[str]:
    """Returns the test, or its other forms where this one does not run: on another database, with other parameters."""
    if name in items:
        return [name]
    return [other for other in items if other.partition("[")[0] == name.partition("[")[0]]


def _line(mutant: Mutant) -> str:
    change = f"{mutant.mutation.before.splitlines()[0]}  ->  {mutant.mutation.after.splitlines()[0]}"
    return f"{mutant.verdict:9} {mutant.module}:{mutant.mutation.function}  {change}  {mutant.killer or ''}"


def _failed(run: Callable[[Callable[[Any], None]], None]) -> str | None:
    """Runs tests in a process of their own. Returns the one that failed, or that ran when the process died."""
    pid, file = _forked(run)
    os.waitpid(pid, 0)
    _end_all_below()
    return _answer(file)


def _run(session: pytest.Session, items: Sequence[pytest.Item], running: Callable[[Any], None]) -> None:
    """Runs tests up to the first that fails, and tells which one it is at; None when all have passed."""
    resource.setrlimit(resource.RLIMIT_CPU, (_ENDLESS_CPU_S, _ENDLESS_CPU_S))
    failures = _Failures()
    plugins = session.config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(failures)
    for index, item in enumerate(items):
        running(item.nodeid)
        following = items[index + 1] if index + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failures.first is not None:
            session._setupstate.teardown_exact(None)  # pyright: ignore[reportPrivateUsage] - as pytest does at its end
            return
    running(None)


class _Failures:
    def __init__(self) -> None:
        self.first: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.first is None:
            self.first = report.nodeid


def _forked(work: Callable[[Callable[[Any], None]], None]) -> tuple[int, IO[bytes]]:
    """Does the work in a process that adopts what its processes leave, and ends them. Returns its pid and answers."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - who reads the answer closes it
    pid = os.fork()
    if pid:
        return pid, file
    try:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        work(lambda value: _put(file, value))
        _end_all_below()
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
    finally:
        os._exit(0)


def _put(file: IO[bytes], value: Any) -> None:
    os.pwrite(file.fileno(), pickle.dumps(value), 0)  # what is behind a pickle is not read


def _answer(file: IO[bytes]) -> Any:
    """Returns the last value that was put, or None."""
    with file:
        content = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
    return pickle.loads(content) if content else None


def _end_all_below() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
            process.wait()
