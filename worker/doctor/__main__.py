"""`python -P -m worker.doctor [--json]`: checks this host, configured by `TORCHYARD_*` variables.

Exits with 1 if a check failed. Leaves nothing behind.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
import json
import os
from pathlib import Path
import shutil
import sys
import textwrap

from torchyard.contract.errors import TorchyardError
from torchyard.host import terminal
from worker.doctor import daemon, disk, gpus, host, joined, pool, pytorch, services, starts
from worker.doctor.findings import Finding, Status, failed
from worker.doctor.folders import check_folders
from worker.doctor.isolation import check_isolation
from worker.doctor.packages import check_packages, check_variables
from worker.engines.local.environment import inherited
from worker.settings import Settings

_COLOURS = {Status.OK: "32", Status.WARNING: "33", Status.FAILED: "31"}
_STATUS_WIDTH, _CHECK_WIDTH = 9, 12


def main() -> int:
    parser = argparse.ArgumentParser(prog="worker.doctor", description="Checks this host.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--embedded-redis", type=Path, metavar="SOCKET", help="the socket of torchyard up's own Redis")
    arguments = parser.parse_args()
    try:
        findings: list[Finding] = []
        for finding in _findings(Settings.load(), embedded_redis=arguments.embedded_redis):
            findings.append(finding)
            if not arguments.json:
                _print_finding(finding)
    except TorchyardError as error:
        terminal.note(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    if arguments.json:
        terminal.write(json.dumps([asdict(finding) for finding in findings]))
    else:
        terminal.note(_summary(findings))
    return 1 if any(finding.status is Status.FAILED for finding in findings) else 0


def _findings(settings: Settings, *, embedded_redis: Path | None) -> Iterator[Finding]:
    yield from _guarded("host", host.check_host)
    partition = settings.partition
    if partition is None:
        yield from _of_host(settings)
    else:
        yield from _guarded("disk", lambda: disk.check_disks(settings.root, settings.blobs, shared=True))
        yield from _guarded("torch", lambda: [pytorch.check_torch(gpus=0)])
        yield from _guarded("packages", lambda: [check_packages(settings)])
        yield from _guarded("pool", lambda: pool.check_pool(settings, partition))
    if joined.has_joined(settings.root):
        yield from _guarded("service", lambda: joined.check_joined(settings.root))
        return
    yield from _guarded("database", lambda: [services.check_database(settings)])
    yield from _guarded("worker", lambda: daemon.check_daemon(settings))
    yield from _guarded("service", lambda: [services.check_service(settings)])
    yield from _guarded("secrets", lambda: services.check_secrets(settings))
    yield from _guarded("redis", lambda: [services.check_redis(settings, embedded=embedded_redis)])
    yield from _guarded("controller", lambda: [services.check_controller(settings, embedded=embedded_redis)])


def _of_host(settings: Settings) -> Iterator[Finding]:
    """Checks what a worker needs that runs jobs on this host."""
    gpu_count = 0
    yield from _guarded("isolation", lambda: [check_isolation(settings.isolation, settings.helper_needs)])
    yield from _guarded("disk", lambda: disk.check_disks(settings.root, settings.blobs, shared=False))
    yield from _guarded("folders", lambda: check_folders(settings.runs, used=disk.used(settings.root)))
    for finding in _guarded("devices", lambda: gpus.check_devices(settings)):
        gpu_count += finding.check.startswith("gpu")
        yield finding
    yield from _guarded("torch", lambda: [pytorch.check_torch(gpus=gpu_count)])
    yield from _guarded("packages", lambda: [check_packages(settings)])
    if settings.job_variables:
        yield from _guarded("variables", lambda: [check_variables(settings)])
    if settings.launcher == "auto":
        yield from _guarded("starts", lambda: [starts.check_starts(inherited(os.environ))])


def _guarded(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yields the findings of one check. An error of the check itself is a finding too, so that the others go on."""
    try:
        yield from check()
    except (OSError, ValueError, KeyError) as error:
        yield failed(name, f"the check itself failed: {error!r}", "see what the error names")


def _print_finding(finding: Finding) -> None:
    """Prints the status and the fact, and below them the advice."""
    status = terminal.paint(f"{finding.status:<{_STATUS_WIDTH}}", _COLOURS[finding.status], sys.stdout)
    first, *rest = _wrapped(finding.fact)
    terminal.write(f"{status}{finding.check:<{_CHECK_WIDTH}}{first}")
    advice = _wrapped(f"→ {finding.advice}") if finding.advice else []
    for line in (*rest, *advice):
        terminal.write(f"{'':<{_STATUS_WIDTH + _CHECK_WIDTH}}{line}")
    sys.stdout.flush()


def _wrapped(text: str) -> Sequence[str]:
    """Breaks the text into lines of the terminal's width. In a pipe, it is one line."""
    if not sys.stdout.isatty():
        return [text]
    width = max(30, shutil.get_terminal_size().columns - _STATUS_WIDTH - _CHECK_WIDTH)
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False) or [""]


def _summary(findings: Sequence[Finding]) -> str:
    failures, warnings = (
        sum(finding.status is status for finding in findings) for status in (Status.FAILED, Status.WARNING)
    )
    warned = f"{warnings or 'no'} warning{'' if warnings == 1 else 's'}"
    return f"{len(findings)} checks: {failures or 'none'} failed, {warned}."


if __name__ == "__main__":
    sys.exit(main())
