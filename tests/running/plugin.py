"""The plugin of pytest that collects the tests once, forks workers, and judges a run of all quick tests."""

from argparse import ArgumentTypeError
import logging
import os
from pathlib import Path
import signal
import threading
from typing import Any, cast

import _pytest.logging
import pytest

from tests.running import budget, hooks, quick
from tests.running.costs import Meter
from tests.running.groups import make_groups
from tests.running.pool import Pool
from tests.running.remains import Remains
from tests.running.shards import Shard, parse_shard
from tests.running.verdicts import Verdicts


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hooks)
    group = parser.getgroup("running", "how the tests are run")
    group._addoption(  # pyright: ignore[reportPrivateUsage] pytest keeps short options to itself
        "-n", dest="workers", type=_workers, default="auto", metavar="COUNT",
        help="how many processes run the tests: two more than there are cores (auto); 0: that of pytest",
    )  # fmt: skip
    group.addoption("--shard", type=_shard, metavar="3/30", help="run the third of thirty shares of the tests")
    group.addoption(
        "--record-costs", action="store_true", help="record what the tests cost, in tests/running/costs.json"
    )


def pytest_configure(config: pytest.Config) -> None:
    _restore_signals()
    cast(Any, _pytest.logging.catching_logs).__enter__ = _listen_at_the_root
    config.pluginmanager.register(
        Verdicts(whole=quick.runs_all(config), records=bool(config.getoption("record_costs"))), "verdicts"
    )
    config.pluginmanager.register(Remains())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shard = cast(Shard | None, config.getoption("shard"))
    if shard is not None:
        left_out = [item for item in items if not shard.has(item.nodeid)]
        items[:] = [item for item in items if shard.has(item.nodeid)]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs the tests in workers. Leaves them to pytest's own loop where no worker is wanted or collecting failed."""
    config = session.config
    size = cast(int, config.getoption("workers"))
    alone = size == 0 or config.getoption("usepdb") or config.getoption("trace")
    failed = session.testsfailed and not config.getoption("continue_on_collection_errors")
    if alone or failed or not session.items or config.getoption("collectonly"):
        config.hook.pytest_worker_started(config=config, worker="main")
        return None
    recorded = budget.read()
    lengths, spent = (recorded.lengths, recorded.files) if recorded is not None else ({}, {})
    groups = make_groups(session.items, lengths, spent, workers=size)
    config.hook.pytest_workers_starting(session=session)
    _check_threads()
    Pool(session, groups, size=size).run()
    return True


def pytest_worker_started(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter())


def _workers(text: str) -> int:
    """Two more than there are cores, as half of the tests mostly wait for processes."""
    return len(os.sched_getaffinity(0)) + 2 if text == "auto" else int(text)


def _shard(text: str) -> Shard:
    try:
        return parse_shard(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _restore_signals() -> None:
    """Programs that tests start end by Ctrl-C, also where a shell has started the tests in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def _listen_at_the_root(catching: Any) -> Any:
    """Takes the place of the method that also listens at each logger that tells its parents nothing.

    torch has fifty of those, and a test has six listeners: that took a millisecond of a processor for each test.
    """
    root = logging.getLogger()
    root.addHandler(catching.handler)
    catching.attached_loggers.append(root)
    if catching.level is not None:
        catching.handler.setLevel(catching.level)
        catching.orig_level = root.level
        root.setLevel(min(root.level, catching.level))
    return catching.handler


def _check_threads() -> None:
    """A fork has only the thread that forks: a lock that another one holds stays locked in it."""
    tasks = Path("/proc/self/task")
    count = len([*tasks.iterdir()]) if tasks.is_dir() else threading.active_count()
    if count > 1:
        names = ", ".join(thread.name for thread in threading.enumerate())
        raise pytest.UsageError(
            f"{count} threads run after the collection, of Python: {names}. Import less, or use -n 0."
        )
