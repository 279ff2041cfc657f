"""Writes tars of others, as WebDataset and tar(1) do, and hostile ones."""

from collections.abc import Iterable, Mapping
import io
from pathlib import Path
import tarfile
from typing import Literal


def tar(path: Path, files: Mapping[str, bytes], *, form: Literal[0, 1, 2] = tarfile.GNU_FORMAT) -> Path:
    """Writes a tar with tarfile, whose headers have users, modes and times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as written:
        for name, content in files.items():
            add(written, name, content)
    return path


def add(written: tarfile.TarFile, name: str, content: bytes = b"", **fields: object) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.uname, member.mtime = len(content), 0o600, "someone", 1_700_000_000
    for key, value in fields.items():
        setattr(member, key, value)
    written.addfile(member, io.BytesIO(content))


def header(
    name: str, *, size: int = 0, kind: bytes = b"0", form: Literal[0, 1, 2] = tarfile.USTAR_FORMAT, **fields: object
) -> bytes:
    """Returns one header with a right checksum."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    for key, value in fields.items():
        setattr(member, key, value)
    return member.tobuf(form)


def extended(records: Iterable[tuple[str, str]], *, kind: bytes = b"x") -> bytes:
    """Returns a header of PAX with these records."""
    content = b"".join(record(key, value) for key, value in records)
    return header("././@PaxHeader", size=len(content), kind=kind) + content + bytes(-len(content) % 512)


def record(key: str, value: str) -> bytes:
    rest = f" {key}={value}\n".encode()
    size = len(rest) + 1
    while len(str(size)) + len(rest) != size:
        size += 1
    return str(size).encode() + rest


def block(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


END = bytes(1024)
