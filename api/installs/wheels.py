"""The wheels of this very service, made of what is installed here: from packages, or from a clone."""

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
import hashlib
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from io import BytesIO
from itertools import chain
import json
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from torchyard.contract.installs import DIGESTS_FILE
from torchyard.contract.wire.version import own_version

_CLIENT, _SERVER, _LOCK_NAME = "torchyard", "torchyard-server", "requirements.lock"
_NAMES = (".py", ".mako")
"""Ends of the names of files that are packed, beside those of the page."""
_OTHERS = frozenset({"py.typed", _LOCK_NAME})
_PAGES = ("cli/docs/*.md", "cli/docs/reference/*.md", "cli/docs/operating/*.md")
"""The pages of `torchyard help`. In a clone their folder is a link, which `rglob` does not follow."""
_METADATA = ("METADATA", "entry_points.txt", "top_level.txt")
_WHEEL = "Wheel-Version: 1.0\nGenerator: torchyard\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the same content is the same wheel."""
_LOCK = Path(__file__).parents[1] / _LOCK_NAME


@dataclass(frozen=True)
class InstallFile:
    """A file that other machines fetch, by its digest."""

    name: str
    content: bytes
    sha256: str

    @classmethod
    def of(cls, name: str, content: bytes) -> "InstallFile":
        return cls(name, content, hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Installs:
    """What other machines install to have exactly this version."""

    version: str
    first: InstallFile
    """The client's wheel, which has the digests of the others: whoever knows its digest knows all."""
    client: InstallFile
    """The client's wheel without them."""
    server: InstallFile
    lock: InstallFile
    """All that both need, each with its digests."""

    @property
    def files(self) -> tuple[InstallFile, ...]:
        return (self.first, self.client, self.server, self.lock)

    def find(self, sha256: str, name: str) -> InstallFile | None:
        """Returns the file of this digest and name, if there is one."""
        return next((file for file in self.files if (file.sha256, file.name) == (sha256, name)), None)


class InstallFiles:
    """Makes them at the first question, once a process: a tenth of a second, as nothing is compressed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: Installs | None = None

    def get(self) -> Installs:
        with self._lock:
            if self._made is None:
                self._made = _make()
            return self._made


def _make() -> Installs:
    client, server = _wheel(_CLIENT), _wheel(_SERVER)
    lock = InstallFile.of(_LOCK_NAME, _LOCK.read_bytes())
    digests = {
        part: {"name": file.name, "sha256": file.sha256}
        for part, file in (("client", client), ("server", server), ("lock", lock))
    }
    first = _wheel(_CLIENT, {DIGESTS_FILE: json.dumps(digests).encode()})
    return Installs(own_version(), first, client, server, lock)


def _wheel(name: str, more: Mapping[str, bytes] = MappingProxyType({})) -> InstallFile:
    """Packs a distribution that is installed here. `more`: other files of it, by their paths."""
    found = distribution(name)
    base = f"{name.replace('-', '_')}-{found.version}"
    files = {**dict(_sources(found)), **more}
    for part in _METADATA:
        if (text := found.read_text(part)) is not None:
            files[f"{base}.dist-info/{part}"] = text.encode()
    files[f"{base}.dist-info/WHEEL"] = _WHEEL.encode()
    record = f"{base}.dist-info/RECORD"
    listed = [f"{path},{_digest(content)},{len(content)}\n" for path, content in sorted(files.items())]
    files[record] = "".join([*listed, f"{record},,\n"]).encode()
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_STORED) as archive:
        for path, content in sorted(files.items()):
            entry = ZipInfo(path, _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return InstallFile.of(f"{base}-py3-none-any.whl", packed.getvalue())


def _sources(found: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yields the path and the content of each file of the distribution's packages."""
    for package in (found.read_text("top_level.txt") or "").split():
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None, package
        folder = Path(spec.origin).parent
        for path in folder.rglob("*"):
            below = path.relative_to(folder.parent)
            of_page = below.parts[:2] == ("api", "static")
            if (of_page or path.suffix in _NAMES or path.name in _OTHERS) and path.is_file():
                yield below.as_posix(), path.read_bytes()
        for path in chain.from_iterable(map(folder.glob, _PAGES)):
            yield path.relative_to(folder.parent).as_posix(), path.read_bytes()


def _digest(content: bytes) -> str:
    return f"sha256={urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()}"
