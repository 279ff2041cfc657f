"""`python -P -m worker.doctor [--json]`: checks this host, set by `TORCHYARD_*` variables.

Exit code 1 if something failed. It leaves nothing behind.
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

from torchyard.contract import terminal
from torchyard.contract.errors import TorchyardError
from worker.doctor import disk, gpus, host, pytorch, services, starts
from worker.doctor.findings import Finding, Status, failed
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
        found: list[Finding] = []
        for finding in _findings(Settings.load(), embedded_redis=arguments.embedded_redis):
            found.append(finding)
            if not arguments.json:
                _show(finding)
    except TorchyardError as error:
        terminal.note(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    if arguments.json:
        terminal.write(json.dumps([asdict(finding) for finding in found]))
    else:
        terminal.note(_summary(found))
    return 1 if any(finding.status is Status.FAILED for finding in found) else 0


def _findings(settings: Settings, *, embedded_redis: Path | None) -> Iterator[Finding]:
    cards = 0
    yield from _guarded("host", host.look)
    yield from _guarded("disk", lambda: disk.look(settings.root, settings.blobs))
    for finding in _guarded("devices", lambda: gpus.look(settings)):
        cards += finding.check.startswith("gpu")
        yield finding
    yield from _guarded("torch", lambda: [pytorch.look(gpus=cards)])
    if settings.launcher == "auto":
        yield from _guarded("starts", lambda: [starts.look(inherited(os.environ))])
    yield from _guarded("database", lambda: [services.database(settings)])
    yield from _guarded("redis", lambda: [services.redis(settings, embedded=embedded_redis)])


def _guarded(check: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """One check that breaks must not end the others."""
    try:
        yield from look()
    except (OSError, ValueError, KeyError) as error:
        yield failed(check, f"the check itself broke: {error!r}", "look at what it names")


def _show(finding: Finding) -> None:
    """The fact behind its status, and below it what to do."""
    status = terminal.paint(f"{finding.status:<{_STATUS_WIDTH}}", _COLOURS[finding.status], sys.stdout)
    first, *rest = _wrapped(finding.fact)
    terminal.write(f"{status}{finding.check:<{_CHECK_WIDTH}}{first}")
    advice = _wrapped(f"→ {finding.advice}") if finding.advice else []
    for line in (*rest, *advice):
        terminal.write(f"{'':<{_STATUS_WIDTH + _CHECK_WIDTH}}{line}")
    sys.stdout.flush()


def _wrapped(text: str) -> Sequence[str]:
    """In a pipe nothing is broken."""
    if not sys.stdout.isatty():
        return [text]
    width = max(30, shutil.get_terminal_size().columns - _STATUS_WIDTH - _CHECK_WIDTH)
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False) or [""]


def _summary(found: Sequence[Finding]) -> str:
    failures, warnings = (
        sum(finding.status is status for finding in found) for status in (Status.FAILED, Status.WARNING)
    )
    return (
        f"{len(found)} checks: {failures or 'none'} failed, {warnings or 'no'} warning{'' if warnings == 1 else 's'}."
    )


if __name__ == "__main__":
    sys.exit(main())
