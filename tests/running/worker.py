"""A process that runs tests: a fork of the one that has collected them."""

import atexit
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
import os
from pathlib import Path
import signal
import sys
import threading
import traceback
from types import SimpleNamespace
from typing import Any, NoReturn, cast
import warnings

import pytest

from tests.running.messages import Asked, Begun, Broken, Finished, Message, Wanted, Warned


def run(
    session: pytest.Session, connection: Connection, *, name: str, temporary: Path, group: Sequence[int]
) -> NoReturn:
    """Runs the group, then those that the parent sends. Ends this process; tears down what the tests have shared."""
    worker = _Worker(session, connection, group)
    os.register_at_fork(after_in_child=connection.close)  # nobody else speaks for this process
    try:
        _prepare(session.config, name, temporary)
        session.config.pluginmanager.register(worker)
        session.config.hook.pytest_worker_started(config=session.config, worker=name)
        worker.work()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the teardown is not interrupted
        with suppress(OSError):
            worker.tell(Asked("a test was interrupted"))
    except (EOFError, ConnectionError):  # the parent has ended
        pass
    except BaseException:  # noqa: BLE001 the parent tells it
        worker.tell(Broken(traceback.format_exc()))
    _leave(session, worker)


def _prepare(config: pytest.Config, name: str, temporary: Path) -> None:
    """Gives this process what it may not share with its parent: captured output, temporary files, a terminal."""
    plugins = config.pluginmanager
    terminal: Any = plugins.unregister(name="terminalreporter")
    if terminal is not None:
        quiet = SimpleNamespace(_tw=terminal._tw)  # pyright: ignore[reportPrivateUsage]
        plugins.register(quiet, "terminalreporter")  # plugins write to it at a timeout
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory: Any = cast(Any, config)._tmp_path_factory
    factory._given_basetemp, factory._basetemp = temporary / name, None
    factory._exit_stack, factory._next_number = ExitStack(), {}


class _Worker:
    """A plugin of the worker's pytest, which gathers what is reported of the test that runs."""

    def __init__(self, session: pytest.Session, connection: Connection, group: Sequence[int]) -> None:
        self._session = session
        self._connection = connection
        self._left = deque(group)
        self._ended = False
        self._reports: list[dict[str, Any]] = []
        self._warned: list[Warned] = []

    def work(self) -> None:
        while (test := self.next_test()) is not None:
            self._left.popleft()
            self.tell(Begun(test))
            following = self._item(self._left[0]) if self._left else cast(pytest.Item, _Following(self))
            item = self._item(test)
            try:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            except pytest.exit.Exception as asked:
                self.tell(Asked(asked.msg))
            self.tell(Finished(test, self._reports, self._warned))
            self._reports, self._warned = [], []
            if self._session.shouldfail or self._session.shouldstop:
                return
            while self._connection.poll():
                self._take(self._connection.recv())

    def next_test(self) -> int | None:
        """Returns the next test of the group, or of the next group. None if there is no more."""
        if not self._left and not self._ended:
            self.tell(Wanted())
            self._take(self._connection.recv())
        return self._left[0] if self._left else None

    def next_item(self) -> pytest.Item | None:
        return None if (test := self.next_test()) is None else self._item(test)

    def tell(self, message: Message) -> None:
        self._connection.send(message)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        self._reports.append(config.hook.pytest_report_to_serializable(config=config, report=report))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        shown = warning_message
        where = (shown.filename, shown.lineno, when, nodeid, location)
        self._warned.append(Warned(str(shown.message), shown.category.__name__, *where))

    def _take(self, group: Sequence[int] | None) -> None:
        """Takes the next group, or ends: then those of this one that are left do not run either."""
        if group is None:
            self._ended = True
            self._left.clear()
        else:
            self._left.extend(group)

    def _item(self, test: int) -> pytest.Item:
        return self._session.items[test]


class _Following:
    """Stands for the item after the last of a group: which one that is, is asked when the last is torn down."""

    def __init__(self, worker: _Worker) -> None:
        self._worker = worker

    def listchain(self) -> list[Any]:
        item = self._worker.next_item()
        return [] if item is None else item.listchain()


def _leave(session: pytest.Session, worker: _Worker) -> NoReturn:
    """Ends this process as an interpreter does, but without going back to the frames of the parent."""
    code = 1
    try:
        setups: Any = cast(Any, session)._setupstate
        setups.teardown_exact(None)
        code = 0
    except BaseException:  # noqa: BLE001 the parent tells it
        with suppress(OSError):
            worker.tell(Broken(traceback.format_exc()))
    try:
        cast(Any, threading)._shutdown()
        cast(Any, atexit)._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)
