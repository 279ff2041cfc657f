"""Has a process read what a job's code requires. This one parses nothing that users brought but its short answer."""

import errno
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.wire.units import format_duration
from torchyard.host import failpoints
from worker.packages import project
from worker.packages.order import FILES, MAX_LOCK_BYTES, MAX_REPORT_BYTES, MAX_TEXT_BYTES, ReadOrder, ReadReport
from worker.packages.requirements import Requirements, shown
from worker.packages.rules import PackageRules

_PATIENCE_S = 0.5
"""How long one call waits for a process that most often ends at once."""
_MOST_BYTES = MAX_REPORT_BYTES + MAX_TEXT_BYTES + MAX_LOCK_BYTES


class Reader:
    """The caller calls `poll` until it returns something or raises, and then, or before, `close`, in one thread."""

    def __init__(self, order: ReadOrder, rules: PackageRules) -> None:
        self._order = order
        self._rules = rules
        self._child: subprocess.Popen[bytes] | None = None
        self._answer = -1
        self._deadline = 0.0

    @property
    def code(self) -> str:
        """The folder of the code."""
        return self._order.code

    def poll(self) -> Requirements | None:
        """Returns what the code requires, or None while it is read.

        Raises DataError if a file is missing, too large or cannot be read, ConfigError if it asks for what is not
        possible, and OSError.
        """
        if self._child is None:
            self._child = self._start()
        try:
            code = self._child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() < self._deadline:
                return None
            limit = format_duration(self._rules.timeout)
            raise DataError(f"{self._order.name} was not read within {limit} (TORCHYARD_SETUP_TIMEOUT)") from None
        if code == -signal.SIGXCPU:
            limit = f"{self._order.seconds} s of processor time"
            raise DataError(f"{shown(self._order)} cannot be read within {limit}: write it more simply")
        if code != 0:
            raise OSError(errno.EIO, f"the process that reads {self._order.name} ended with {code}")
        return self._requirements()

    def close(self) -> None:
        """Ends the process."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
        if self._answer >= 0:
            os.close(self._answer)
            self._answer = -1

    def _start(self) -> "subprocess.Popen[bytes]":
        """Its answer goes to a file in memory, of which no more is read than is allowed."""
        self._answer = os.memfd_create("requirements")
        self._deadline = time.monotonic() + self._rules.timeout.total_seconds()
        command = [sys.executable, "-P", "-m", "worker.packages.reading", self._order.to_json()]
        armed = {name: value for name, value in os.environ.items() if name == failpoints.VARIABLE}
        null = subprocess.DEVNULL
        # A group of its own, for the terminal's signals, but this session: other children are taken for orphans.
        return subprocess.Popen(command, env=armed, stdin=null, stdout=self._answer, process_group=0)

    def _requirements(self) -> Requirements:
        answer = os.pread(self._answer, _MOST_BYTES + 1, 0)
        head, _, content = answer.partition(b"\n")
        try:
            report = _report(head, content)
        except ValueError as error:
            raise OSError(errno.EIO, f"the process that reads {self._order.name} answered badly: {error}") from None
        if report.error:
            raise OSError(report.error, os.strerror(report.error), self._order.name)
        if report.problem:
            raise (ConfigError if report.problem == "config" else DataError)(report.message)
        files, at = dict[str, bytes](), 0
        for name, size in report.sizes.items():
            files[name], at = content[at : at + size], at + size
        known = [name for name in report.provided if name in self._order.versions]
        return Requirements(
            report.kind,
            shown(self._order),
            files,
            report.own_torch,
            known,
            report.notes,
            report.projects,
            project.digest_of(Path(self._order.code)) if report.projects else "",
        )


def _report(head: bytes, content: bytes) -> ReadReport:
    """Raises ValueError."""
    if len(head) > MAX_REPORT_BYTES:
        raise ValueError("it is too long")
    report = ReadReport.from_json(head)
    if min(report.sizes.values(), default=0) < 0 or sum(report.sizes.values()) != len(content):
        raise ValueError("its files have other sizes")
    if not report.sizes.keys() <= FILES:
        raise ValueError("its files have other names")
    return report
