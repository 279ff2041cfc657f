"""Gives a machine that has joined the programs of its service's version, in an environment of their own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
import hashlib
from importlib.resources import files
import os
from pathlib import Path
import shutil
import subprocess
import sys

import httpx2

from torchyard.cli.up import programs
from torchyard.client.discovery import Server
from torchyard.client.responses import parse, problem
from torchyard.client.transport import http_options, unreachable
from torchyard.contract.errors import ConfigError, NotFound, Unavailable
from torchyard.contract.installs import DIGESTS_FILE, INSTALL, FileDigest, InstallDigests, InstallFileView, InstallView
from torchyard.host.joined import Joined

_MOST_BYTES = 128 << 20
"""Of one file."""
_COMPLETE = ".complete"
_ENVIRONMENT, _ENVIRONMENTS, _DOWNLOADS = "environment", "environments", "downloads"
_KEPT = 2
"""Environments: the newest, and the one of jobs that may still run."""

Say = Callable[[str], object]


def python_of(joined: Joined, root: Path, *, say: Say) -> Path:
    """Returns the Python that runs the worker of this machine: that of the newest environment below `root`, or this one
    where the programs of the service are installed. Else an environment is made.

    Raises ConfigError, Unavailable and ServerUnreachable.
    """
    if (found := _current(root)) is not None:
        return found
    try:
        programs.check_installed()
    except ConfigError:
        return install(joined, root, _own_digests() or read_digests(joined), say=say)
    return Path(sys.executable)


def newest(root: Path) -> Path:
    """Returns the Python of the newest environment below `root`, or this one."""
    return _current(root) or Path(sys.executable)


def lasting(root: Path, python: Path) -> Path:
    """Returns the path by which this Python, and after an update the next one, is started."""
    link = root / _ENVIRONMENT
    return _python(link) if python == _current(root) else python


def read_digests(joined: Joined) -> InstallDigests:
    """Asks the service for the digests of its own version. Raises ServerUnreachable."""
    with _Service(joined) as service:
        view = parse(service.get(INSTALL), InstallView)
    return InstallDigests(client=_digest(view.client), server=_digest(view.server), lock=_digest(view.lock))


def is_current(root: Path, wanted: InstallDigests) -> bool:
    """Whether the newest environment below `root` is of these files."""
    return _current(root) == _python(root / _ENVIRONMENTS / _name(wanted))


def install(joined: Joined, root: Path, wanted: InstallDigests, *, say: Say) -> Path:
    """Makes an environment of these files, which the service serves, and returns its Python: the next start uses it.

    The packages come from the index of pip's or uv's settings, and are what the lock says, byte by byte. Torchyard
    itself comes from the service alone. Raises ConfigError for a file that is not the wanted one and for a Python that
    makes no environment, Unavailable if a package cannot be had.
    """
    folder = root / _ENVIRONMENTS / _name(wanted)
    if not (folder / _COMPLETE).exists():
        say(f"Installing the service's packages into {folder}, once: several gigabytes.")
        with _Service(joined) as service:
            client, server, lock = (
                service.fetch(file, root / _DOWNLOADS) for file in (wanted.client, wanted.server, wanted.lock)
            )
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        _fill(folder, client=client, server=server, lock=lock)
        (folder / _COMPLETE).touch()
    _point_to(root, folder)
    return _python(folder)


@dataclass(frozen=True)
class _Installer:
    """pip, or uv where it is there."""

    make: list[str]
    add: list[str]

    @classmethod
    def find(cls, folder: Path) -> "_Installer":
        uv, python = os.environ.get("UV") or shutil.which("uv"), str(_python(folder))
        base = str(Path(sys.executable).resolve())  # uv removes the environment of this process one day
        if uv is None:
            pip = [python, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
            return cls([base, "-P", "-m", "venv", str(folder)], pip)
        venv = [uv, "venv", "--no-project", "--python", base, str(folder)]
        return cls(venv, [uv, "pip", "install", "--python", python])


def _fill(folder: Path, *, client: Path, server: Path, lock: Path) -> None:
    installer = _Installer.find(folder)
    if (code := _run(installer.make)) != 0:
        raise ConfigError(
            f"{sys.executable} cannot make an environment (exit code {code}, see above). On Debian and Ubuntu:"
            " apt install python3-venv; or install uv"
        )
    # The lock is complete, so that nothing else is looked for, and its digests are those of the service.
    if (code := _run([*installer.add, "--no-deps", "--require-hashes", "-r", str(lock)])) != 0:
        raise Unavailable(f"the packages cannot be installed (exit code {code}, see above). The next start tries again")
    if (code := _run([*installer.add, "--no-index", "--no-deps", str(client), str(server)])) != 0:
        raise Unavailable(f"the wheels of the service cannot be installed (exit code {code}, see above)")


def _run(command: list[str]) -> int:
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode


def _point_to(root: Path, folder: Path) -> None:
    """Makes the environment the newest, and removes those that no job can use any more."""
    link, temporary = root / _ENVIRONMENT, root / f".{_ENVIRONMENT}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(folder)
    temporary.replace(link)
    os.utime(folder)
    for old in sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _current(root: Path) -> Path | None:
    folder = (root / _ENVIRONMENT).resolve()
    return _python(folder) if (folder / _COMPLETE).exists() else None


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _name(wanted: InstallDigests) -> str:
    text = "".join(file.sha256 for file in (wanted.client, wanted.server, wanted.lock))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _digest(view: InstallFileView) -> FileDigest:
    return FileDigest(name=view.name, sha256=view.sha256)


def _own_digests() -> InstallDigests | None:
    """Returns the digests that this wheel has, if a code's line named it."""
    try:
        text = files("torchyard").joinpath(Path(DIGESTS_FILE).name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return InstallDigests.from_json(text)


class _Service:
    """The service that this machine has joined, of which files are fetched."""

    def __init__(self, joined: Joined) -> None:
        self._server = Server(joined.url, "", "does it run?", joined.certificate)
        self._http = httpx2.Client(**http_options(self._server) | {"headers": {"User-Agent": "torchyard"}})

    def __enter__(self) -> "_Service":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str) -> httpx2.Response:
        try:
            response = self._http.get(path)
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error
        if not response.is_success:
            raise problem(response)
        return response

    def fetch(self, file: FileDigest, folder: Path) -> Path:
        """Returns the file, whose bytes have the digest. Raises ConfigError if they have another one."""
        folder.mkdir(mode=0o700, exist_ok=True)
        path, digest = folder / file.name, hashlib.sha256()
        with path.open("wb") as output:
            for chunk in self._chunks(file.path):
                digest.update(chunk)
                output.write(chunk)
        if digest.hexdigest() != file.sha256:
            path.unlink()
            raise ConfigError(f"{self._server.url}{file.path} does not match its digest: it was not used")
        return path

    def _chunks(self, path: str) -> Iterator[bytes]:
        received = 0
        try:
            with self._http.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    raise problem(response)
                for chunk in response.iter_bytes():
                    received += len(chunk)
                    if received > _MOST_BYTES:
                        raise ConfigError(
                            f"{self._server.url}{path} has more than {_MOST_BYTES} bytes: it was not used"
                        )
                    yield chunk
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error
        except NotFound:
            raise ConfigError(f"{self._server.url} was updated after this line was made: get a new line") from None
