"""A package index on this host: tiny packages that a test makes by hand, served as PyPI serves them."""

import base64
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import io
import tarfile
import threading
from typing import cast
import zipfile

_METADATA = ".metadata"
BROKEN_BUILD = """
def build_wheel(*_):
    raise SystemExit("error: command 'gcc' failed: No such file or directory")
"""


def wheel(name: str, version: str = "1.0", *, files: Mapping[str, str] | None = None, needs: str = "") -> bytes:
    """Returns a wheel with a module of the name, which has its `version`, and with a program of the name."""
    info = f"{name}-{version}.dist-info"
    contents = {
        f"{name}.py": f"version = {version!r}\n\ndef main():\n    print({name!r}, version)\n",
        **(files or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-tool = {name}:main\n",
    }
    lines = [f"{path},{_record_hash(text.encode())},{len(text.encode())}" for path, text in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""])
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in contents.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return made.getvalue()


def source(name: str, *, build: str, version: str = "1.0") -> bytes:
    """Returns a source distribution whose build runs the module `build`."""
    contents = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\n',
        "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
        "backend.py": build,
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for path, text in contents.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


@dataclass
class Index:
    """What is served. `held`: while it is cleared, files are sent by half; `reached` says that one is."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    asked: list[str] = field(default_factory=list[str])
    status: int = 200
    """The answer to everything, if not 200."""
    released: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def add(self, name: str, version: str = "1.0", **wanted: object) -> str:
        """Adds a wheel. Returns the sha256 of the file."""
        files = cast("Mapping[str, str] | None", wanted.get("files"))
        content = wheel(name, version, files=files, needs=str(wanted.get("needs", "")))
        self.files[f"{name}-{version}-py3-none-any.whl"] = content
        return hashlib.sha256(content).hexdigest()

    def add_source(self, name: str, *, build: str) -> None:
        self.files[f"{name}-1.0.tar.gz"] = source(name, build=build)

    def downloads(self) -> list[str]:
        """Returns the names of the files that were asked for, each time."""
        names = [path.rpartition("/")[2] for path in self.asked if path.startswith("/files/")]
        return [name for name in names if not name.endswith(_METADATA)]

    def content(self, path: str) -> bytes | None:
        """Returns the answer to a request."""
        kind, _, name = path.strip("/").partition("/")
        if kind == "simple":
            return self.page(name.replace("-", "_"))
        found = self.files.get(name.removesuffix(_METADATA))
        if found is None or not name.endswith(_METADATA):
            return found
        with zipfile.ZipFile(io.BytesIO(found)) as archive:
            (member,) = (member for member in archive.namelist() if member.endswith("/METADATA"))
            return archive.read(member)

    def page(self, name: str) -> bytes | None:
        links = [
            f'<a href="/files/{file}#sha256={hashlib.sha256(content).hexdigest()}" {_has_metadata(file)}>{file}</a>'
            for file, content in self.files.items()
            if file.partition("-")[0] == name
        ]
        return f"<html><body>{''.join(links)}</body></html>".encode() if links else None


@contextmanager
def serving() -> Generator[Index]:
    index = Index()
    index.released.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            content = index.content(self.path)
            if content is None or index.status != 200:
                self.send_error(404 if index.status == 200 else index.status)
                return
            self.send_response(200)
            page = self.path.startswith("/simple/")
            self.send_header("Content-Type", "text/html" if page else "application/octet-stream")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            half = 0 if page or self.path.endswith(_METADATA) else len(content) // 2
            self.wfile.write(content[:half])
            self.wfile.flush()
            if half:
                index.reached.set()
                index.released.wait()
            self.wfile.write(content[half:])

        def do_HEAD(self) -> None:
            index.asked.append(self.path)
            self.send_error(405)

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(BrokenPipeError, ConnectionResetError):
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield index
    finally:
        index.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _has_metadata(file: str) -> str:
    return 'data-core-metadata="true"' if file.endswith(".whl") else ""


def _record_hash(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"sha256={digest}"
