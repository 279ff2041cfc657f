"""Run by root: enters sandboxes, makes a list of the firewall then, and prints what of it they can write.

All happens in a network namespace of its own: `python -m tests.security.late_table FOLDER`.
"""

from collections.abc import Iterator
import ctypes
import json
import os
from pathlib import Path
import socket
import struct
import sys
import traceback

from tests.security import walk
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import IsolationReport
from worker.host.attempt_key import AttemptKey
from worker.sandbox import entry, levels
from worker.sandbox.policy import sandbox_of
from worker.sandbox.writable import WritableFolders

CANNOT = 3
"""The exit code where the kernel makes no such list, or lets no one have a network."""
NAME = b"late"
_LANDLOCK = IsolationReport(level="landlock", filtered=True)
_MOUNTS = IsolationReport(level="basic", own_mounts=True, filtered=True)
_CLONE_NEWNET = 0x40000000
_SET_REPLACE = 64
_HOOKS = (1, 2, 3)
"""Of the table `filter`: what comes in, what is forwarded, what goes out."""
_SET, _ACCEPT = 2, -2


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        sys.exit(CANNOT)
    here = levels.level_of(levels.Isolation.AUTO)
    try:
        found = list(_entered(Path(sys.argv[1]), (here, _LANDLOCK, _MOUNTS)))
    except _Refused as error:
        sys.stderr.write(str(error))
        sys.exit(CANNOT)
    sys.stdout.write(json.dumps(found))


class _Refused(Exception):
    """The kernel makes no such list."""


def _entered(folder: Path, each: tuple[IsolationReport, ...]) -> Iterator[list[str]]:
    """Enters a sandbox of each level, makes the list when all are inside, and yields which files of it they opened."""
    started = [_start(folder / str(number), level) for number, level in enumerate(each)]
    try:
        add_table()
    except OSError as error:
        for order, _ in started:
            os.close(order)
        raise _Refused(str(error)) from None
    for order, answer in started:
        os.write(order, b"x")
        with os.fdopen(answer) as file:
            yield json.load(file)


def _start(folder: Path, level: IsolationReport) -> tuple[int, int]:
    """Enters a sandbox in a fork. Returns a descriptor that starts its walk when written to, and one of its answer."""
    run = RunDir(folder / "run")
    run.create()
    own_folders = WritableFolders(folder, temporary=folder).of(AttemptKey("job_x", 1), owner="ada")
    own_folders.create()
    sandbox = sandbox_of(level, run=run, own_folders=own_folders, readable=(), writable=(), gpus=True)
    assert sandbox is not None
    waiting, order = os.pipe()
    answer, telling = os.pipe()
    inside, entered = os.pipe()
    if entry.fork(sandbox) == 0:
        try:
            os.close(order)
            entry.enter(sandbox, reaps=True, ended=lambda _: None, stops=bool)
            os.write(entered, b"x")
            os.read(waiting, 1)
            lists = [(path, mode) for path, mode in walk.files() if NAME.decode() in path]
            assert lists
            os.write(telling, json.dumps(walk.opened(lists)).encode())
        except Exception:  # noqa: BLE001 nothing may return into the frames of the parent
            traceback.print_exc()
        finally:
            os._exit(0)
    for descriptor in (waiting, telling, entered):
        os.close(descriptor)
    os.read(inside, 1)
    os.close(inside)
    return order, answer


def add_table() -> None:
    """Has the kernel list who sends something, as `iptables -A INPUT -m recent --set --name late -j ACCEPT` does."""
    recent = struct.pack("=IIBB200sB5x", 0, 0, _SET, 0, NAME, 0)
    match = struct.pack("=H29sB", 32 + len(recent), b"recent", 0) + recent
    entries = [_entry(match), *(_entry() for _ in _HOOKS)]
    entries.append(_entry(target=struct.pack("=H29sB30s2x", 64, b"ERROR", 0, b"ERROR")))
    first, others = len(entries[0]), len(entries[1])
    begins = (0, 0, first + others, first + 2 * others, 0)
    defaults = (0, first, first + others, first + 2 * others, 0)
    content = b"".join(entries)
    counters = ctypes.create_string_buffer(16 * 16)
    replaced = len(_HOOKS) + 1
    header = struct.pack(
        "=32sIII5I5IIQ",
        b"filter",
        sum(1 << hook for hook in _HOOKS),
        len(entries),
        len(content),
        *begins,
        *defaults,
        replaced,
        ctypes.addressof(counters),
    )
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        raw.setsockopt(socket.SOL_IP, _SET_REPLACE, header + content)


def _entry(match: bytes = b"", *, target: bytes = b"") -> bytes:
    """Returns a `struct ipt_entry` that concerns all, with a match or none, and a target: without one, accept it."""
    target = target or struct.pack("=H29sBi4x", 40, b"", 0, _ACCEPT)
    at = 112 + len(match)
    return struct.pack("=84sIHHI16s", b"", 0, at, at + len(target), 0, b"") + match + target


if __name__ == "__main__":
    main()
