"""One attempt's wait for its environment: for another one that installs it, or for a process that does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
import errno
import os
from pathlib import Path
import re
import subprocess
import sys
import time

from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.contract.wire.text import storable
from torchyard.contract.wire.units import format_duration
from torchyard.host import disk, failpoints
from torchyard.host.identity import boot_id
from worker.host import job_variables, process
from worker.host.untrusted import folders_inside, remove_inside
from worker.packages import cache, rules
from worker.packages.cache import PackageCache
from worker.packages.order import INDEX, SERVICE, InstallOrder, ReadOrder
from worker.packages.reader import Reader
from worker.packages.requirements import Requirements
from worker.sandbox.policy import install_sandbox

UNREACHABLE = "the packages cannot be downloaded now"
"""Begins the message of an index that does not answer."""
LOG = "setup"
"""The source of the log, as `RunDir.log` names it."""
_FAILED, _BROKEN_OFF = 1, 2
"""The exit codes of uv: for what cannot be resolved or built, which a build can cause, and for all other errors."""
_LIBRARIES = ("nvidia-", "cuda-")
_LEAST_BYTES = 1 << 25
_KILL_TIMEOUT = timedelta(seconds=10)
_TAIL_BYTES, _TAIL_LINES = 3_000, 20
_LETTERS = re.compile(r"[A-Za-z]{2}")
_CONCLUSION = "╰─▶"
_HINTS = ("hint:", "note:")
_MOST_SENSIBLE = 1_000
_FULL = re.compile(r"No space left on device|Disk quota exceeded|\(os error (28|122)\)")
_UNREACHABLE = re.compile(
    r"error sending request|dns error|tcp connect error|operation timed out|connection (refused|reset|closed)"
    r"|HTTP status server error|429 Too Many Requests|error decoding response body|end of file before message length",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Installed:
    """The environment is whole, and nobody may write it."""

    environment: Path
    was_there: bool


@dataclass(frozen=True)
class NotInstalled:
    """The environment cannot be made: again if the reason is `worker_lost`, else never."""

    reason: EndReason
    message: str

    @property
    def may_retry(self) -> bool:
        return self.reason is EndReason.WORKER_LOST


class Installation:
    """The caller calls `poll` until it returns something, and then, or before, `close`.

    One thread calls both, and lives as long: with it, the process that installs ends.
    """

    def __init__(self, packages: PackageCache, order: ReadOrder, *, owner: str, run: RunDir) -> None:
        self._packages = packages
        self._reader = Reader(order, packages.rules)
        self._requirements: Requirements | None = None
        self._owner = owner
        self._run = run
        self.has_filled_disk = False
        """Whether the disk had little space left while it went on, and it failed for that."""
        self._was_short = False
        self._locks: list[int] = []
        self._fresh: Path | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._deadline = 0.0

    def poll(self) -> Installed | NotInstalled | None:
        """Returns how the installation ended, or None while it goes on.

        Raises DataError and ConfigError for requirements that cannot be read or are not possible, and OSError.
        """
        if self._requirements is None:
            self._requirements = self._reader.poll()
            if self._requirements is None:
                return None
        if self._child is None:
            return self._begin(self._requirements)
        self._was_short = self._was_short or disk.has_little_space(self._packages.root)
        code = self._child.poll()
        if code is not None:
            return self._ended(code)
        if time.monotonic() < self._deadline:
            return None
        limit = format_duration(self._packages.rules.timeout)
        message = f"the packages were not installed within {limit} (TORCHYARD_SETUP_TIMEOUT)"
        self._say(message)
        return NotInstalled(EndReason.LAUNCH_FAILED, self._with_last_words(message))

    def close(self) -> None:
        """Ends the processes, removes what is not whole, and lets others install."""
        self._reader.close()
        if self._child is not None:
            _kill(self._child)
            self._child = None
        if self._fresh is not None:
            remove_inside(self._fresh.parent, self._fresh.name)
            self._fresh = None
        while self._locks:
            os.close(self._locks.pop())

    def _begin(self, requirements: Requirements) -> Installed | None:
        folder = self._packages.folder(requirements, owner=self._owner)
        lock = cache.try_lock(folder)
        if lock is None:
            return None
        self._locks.append(lock)
        installed = cache.complete_in(folder, shared=self._packages.shared)
        if installed is not None:
            return Installed(installed, was_there=True)
        downloads = self._packages.downloads(owner=self._owner)
        shared = cache.try_lock(downloads, shared=True)
        if shared is None:  # they are being removed
            os.close(self._locks.pop())
            return None
        self._locks.append(shared)
        disk.require_free_space(folder, _LEAST_BYTES)
        self._start(requirements, folder, downloads / boot_id())
        return None

    def _start(self, requirements: Requirements, folder: Path, downloads: Path) -> None:
        _remove_others(downloads)
        downloads.mkdir(mode=0o700, exist_ok=True)
        self._fresh = fresh = cache.new_in(folder)
        for name, content in requirements.files.items():
            (fresh / cache.INPUT / name).write_bytes(content)
        self._say(f"installing {requirements.shown} from {self._packages.rules.shown_index}")
        provided = [SERVICE, *requirements.provided]
        used = ", ".join(f"{name} {rules.version(name)}" for name in provided if not name.startswith(_LIBRARIES))
        self._say(f"using the worker's {used}")
        for note in requirements.notes:
            self._say(f"note: {note}")
        order = InstallOrder(
            kind=requirements.kind,
            folder=str(fresh),
            downloads=str(downloads),
            uv=_uv(),
            provided=provided,
            site=rules.site_folders(),
            builds=self._packages.rules.builds,
            code=self._reader.code,
            projects=[*requirements.projects],
            sandbox=install_sandbox(
                self._packages.rules.isolation,
                data_dir=self._packages.root.parent,
                folder=fresh,
                readable=(fresh / cache.INPUT,),
                writable=(fresh / cache.VENV, fresh / cache.WORK, downloads),
                temporary=fresh / cache.WORK,
            ),
        )
        self._deadline = time.monotonic() + self._packages.rules.timeout.total_seconds()
        self._child = self._spawn(order)

    def _spawn(self, order: InstallOrder) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", "worker.packages.install", order.to_json()]
        env = install_environment(os.environ, index=self._packages.rules.index)
        with self._log("stdout").open("ab") as stdout, self._log("stderr").open("ab") as stderr:
            self._log_start = stderr.tell()
            # A group of its own, for the terminal's signals, but this session: other children are taken for orphans.
            return subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, process_group=0
            )

    def _ended(self, code: int) -> Installed | NotInstalled:
        assert self._fresh is not None
        self._child = None
        if code == 0 and not cache.has_environment(self._fresh):
            message = (
                "the packages cannot be installed: what they run has put something else in place of the environment"
            )
            self._say(message)
            return NotInstalled(EndReason.LAUNCH_FAILED, message)
        if code == 0:
            environment = cache.mark_complete(self._fresh, shared=self._packages.shared)
            self._fresh = None
            return Installed(environment, was_there=False)
        words = self._last_words()
        if code not in {_FAILED, _BROKEN_OFF}:
            self._say(f"installing the packages failed with exit code {code}")
            message = f"installing the packages failed with exit code {code}"
            return NotInstalled(EndReason.WORKER_LOST, self._with_last_words(message))
        # A build may print any words: they only say why, where something else shows that it is so.
        if _FULL.search(words) and (self._was_short or disk.is_short(self._fresh)):
            self.has_filled_disk = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._fresh))
        if code == _BROKEN_OFF and _UNREACHABLE.search(words):
            return NotInstalled(EndReason.WORKER_LOST, self._with_last_words(UNREACHABLE))
        return NotInstalled(EndReason.LAUNCH_FAILED, self._with_last_words("the packages cannot be installed"))

    def _log(self, stream: str) -> Path:
        return self._run.log(LOG, stream)

    def _say(self, text: str) -> None:
        with self._log("stderr").open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")

    def _with_last_words(self, message: str) -> str:
        words = self._last_words()
        line = sensible(words)
        return f"{message}: {line}\n{words}" if line else message

    def _last_words(self) -> str:
        """Returns the last lines that the process has written to stderr."""
        with self._log("stderr").open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _TAIL_BYTES))
            text = storable(log.read(_TAIL_BYTES).decode("utf-8", "replace"))
        lines = [line for line in text.splitlines() if not line.startswith("Using Python ")]
        return "\n".join(lines[-_TAIL_LINES:]).strip()


def sensible(words: str) -> str:
    """Returns what of uv's last words says why, on one line; nothing if none does.

    That is its last conclusion, with what continues it. Of a build that failed it is the last line of its own words.
    """
    lines = [line for line in (each.strip() for each in words.splitlines()) if _LETTERS.search(line)]
    lines = [line for line in lines if not line.startswith(_HINTS)]
    last = next((at for at in reversed(range(len(lines))) if lines[at].startswith(_CONCLUSION)), None)
    if last is not None and not any(line.startswith("[std") for line in lines[last:]):
        return " ".join(lines[last:]).removeprefix(_CONCLUSION).strip()[:_MOST_SENSIBLE]
    return lines[-1][:_MOST_SENSIBLE] if lines else ""


def install_environment(environ: Mapping[str, str], *, index: str) -> dict[str, str]:
    """Returns the variables of the process that installs: no setting of the service, and no credential of it."""
    kept = {"PATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", failpoints.VARIABLE}
    proxies = {name.lower(): environ[name] for name in sorted(environ) if name.lower() in _PROXIES}
    chosen = {INDEX: index} if index else {}
    given = job_variables.given(environ)
    named = {job_variables.VARIABLE: ",".join(given)} if given else {}
    return {name: value for name, value in environ.items() if name in kept} | proxies | given | named | chosen


_PROXIES: Sequence[str] = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


def _uv() -> str:
    import uv

    return uv.find_uv_bin()


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """Kills all below the process, and then it: what is left of them would become the worker's. Waits for it."""
    process.kill_all(lambda: process.descendants(child.pid), timeout=_KILL_TIMEOUT)
    child.kill()
    child.wait()


def _remove_others(downloads: Path) -> None:
    """Removes what was downloaded before the host was started."""
    for name in folders_inside(downloads.parent):
        if name != downloads.name:
            remove_inside(downloads.parent, name)
