"""Reads manifests of checkpoints. A large one is parsed by a process of its own: in this one nothing else would run."""

from contextlib import closing

from torchyard.contract.attempts.records import Manifest
from torchyard.contract.errors import DataError
from torchyard.host.confined import Confined, Ended, serve

LARGE_BYTES = 1 << 18
"""A manifest of this size, of more than a thousand files, is parsed in another process."""
_LOAD_CPU_S = _CPU_S = 10
_MEMORY_BYTES = 1 << 30
_MOST_TIMES = 4
"""So many times as large as a manifest is what was understood of it, at most."""


def manifest_of(text: bytes) -> Manifest:
    """Returns the manifest. Raises DataError if it cannot be read, and OSError if no process can be started."""
    try:
        return Manifest.from_json(text if len(text) < LARGE_BYTES else _understood(text))
    except (ValueError, Ended):
        raise DataError("its manifest cannot be read") from None


def _understood(text: bytes) -> bytes:
    """Returns the manifest without what it does not know. Raises Ended and OSError."""
    with closing(Confined(__name__, load_cpu_s=_LOAD_CPU_S)) as process:
        return process.ask(text, cpu_s=_CPU_S, most=_MOST_TIMES * len(text))


def _answered(text: bytes) -> bytes:
    try:
        return Manifest.from_json(text).to_json().encode()
    except ValueError:
        return b""


if __name__ == "__main__":
    serve(lambda _: _answered, memory_bytes=_MEMORY_BYTES)
