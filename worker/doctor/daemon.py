"""Checks whether the worker of this host, if it runs, has troubles in its own work."""

from collections.abc import Iterator

from store import probe
from torchyard.contract.cluster.devices import TroubleReport
from torchyard.contract.errors import ConfigError, Unavailable
from worker.doctor.findings import Finding, ok, warning
from worker.identity import known_worker_id
from worker.settings import Settings

_ADVICE = "read the worker's log, which has the traceback, and docs/operating/worker.md"


def check_daemon(settings: Settings) -> Iterator[Finding]:
    """Yields nothing where no worker of this data directory is alive."""
    worker_id, file = known_worker_id(settings.home / "worker.json"), probe.sqlite_file(settings.database)
    if worker_id is None or (file is not None and not file.exists()):
        return
    try:
        troubles = probe.worker_troubles(settings.database, worker_id)
    except (ConfigError, Unavailable):  # another finding says so
        return
    if troubles is None:
        return
    for trouble in troubles:
        yield warning("worker", _fact(trouble), _ADVICE)
    if not troubles:
        yield ok("worker", "it is alive, and nothing fails in its own work")


def _fact(trouble: TroubleReport) -> str:
    state = "failed at" if trouble.state == "failed" else f"is {trouble.state} since"
    return f"{trouble.work} {state} {trouble.since:%Y-%m-%d %H:%M} UTC: {trouble.problem}"
