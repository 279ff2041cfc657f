"""Namespaces of an attempt: mounts, shared memory, terminals, and processes of its own. They end with its last process.

See mount_namespaces(7), pid_namespaces(7) and ipc_namespaces(7). All mounts are read-only but what the attempt may
write. Unlike Landlock, this covers modes, owners and times of files too.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
import ctypes
from dataclasses import dataclass
import errno
import os
from pathlib import Path
import signal
import struct
from typing import NoReturn

from torchyard.host import inspection
from worker.sandbox.opening import Closed, closed_of, enter_real, open_allowed, open_real

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_MOUNT_SETATTR = 442
"""Number of the system call, the same on every architecture."""
_AT_FDCWD, _AT_RECURSIVE, _RDONLY = -100, 0x8000, 1
_CLONE = {"x86_64": 56, "aarch64": 220}
"""Numbers of the system call clone, which `fork` needs."""
_SHM = "/dev/shm"  # noqa: S108 what POSIX shared memory uses
_RUN = "/run"
_PROC = "/proc"
_GPU_SOCKETS = ("/run/nvidia-persistenced", "/run/nvidia-fabricmanager", "/run/nvidia-topologyd")
_TERMINALS, _NEW_TERMINAL = "/dev/pts", "/dev/ptmx"

_libc = ctypes.CDLL(None, use_errno=True)
_libc_with_lock = ctypes.PyDLL(None, use_errno=True)
"""For a call during which no other thread of Python may run."""
_unmapped: tuple[int, int] | None = None
"""User and group of this process, if it is in a new user namespace that does not know them yet."""
_has_own_mounts = False
"""Whether this process is in a mount namespace that `fork` or `unshare` has made. Else its mounts are the host's."""


@dataclass(frozen=True)
class Namespaces:
    """The namespaces that an attempt can have on this host. `pids` needs `mounts`, for a `/proc` of its own."""

    mounts: bool
    pids: bool


def fork() -> int:
    """Does what `os.fork` does, with a child that is the first process of a pid namespace, as after `unshare`.

    The child calls `map_user`. This process must have one thread: of the C library, only what concerns threads and its
    cached thread id is left as it was. Raises OSError.
    """
    global _unmapped, _has_own_mounts  # noqa: PLW0603 only the child has other values
    mine = os.geteuid(), os.getegid()
    wanted = _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWPID
    in_user_namespace = False
    try:
        pid = _clone(wanted)
    except PermissionError:
        pid, in_user_namespace = _clone(_CLONE_NEWUSER | wanted), True
    if not pid:
        _has_own_mounts = True
        _unmapped = mine if in_user_namespace else None
    return pid


def map_user() -> None:
    """Keeps this process's user in the user namespace that `fork` has made, if it has. Raises OSError."""
    global _unmapped  # noqa: PLW0603 as above
    if _unmapped is not None:
        _map(*_unmapped)
        _unmapped = None


def unshare(*, pids: bool) -> None:
    """Moves this process to new namespaces. With `pids`, its next fork is the first process of a new one.

    Without root, this needs a user namespace too; the process keeps its user there. It must have one thread, and permit
    its inspection. Raises OSError.
    """
    global _has_own_mounts  # noqa: PLW0603 it holds for this process from now on
    user, group = os.geteuid(), os.getegid()
    wanted = _CLONE_NEWNS | _CLONE_NEWIPC | (_CLONE_NEWPID if pids else 0)
    try:
        _check("unshare", _libc.unshare(wanted))
    except PermissionError:
        _check("unshare", _libc.unshare(_CLONE_NEWUSER | wanted))
        _map(user, group)
    _has_own_mounts = True


def make_mounts(
    writable: Sequence[str],
    *,
    pids: bool,
    readable: Sequence[str] = (),
    closed: Sequence[str] = (),
    data_dir: str = "",
    own: Sequence[str] = (),
    temporary: str = "",
    temporary_at: Sequence[str] = (),
    shown: Sequence[str] = (),
) -> None:
    """Makes the mounts of the new namespaces: read-only but for `writable`, and an empty `/dev/shm`. Raises OSError.

    `writable` and `readable` are canonical paths: one that leads through a link is an error, and so is a writable one
    that is or contains `/` or a folder of `closed`, or lies in `data_dir` without being of `own`.

    Each folder of `temporary_at` shows `temporary`, one of `writable`, and of what lies there otherwise only the paths
    of the lists and those of `shown`, which the service has chosen.

    Terminals are new ones too. `/run` has only what is among `readable` and `writable`: sockets there start programs
    outside, as the user of this process. With `pids`, `/proc` shows the processes of this namespace alone.

    Raises RuntimeError where neither `fork` nor `unshare` has made the namespaces: as root, it would change the host.
    """
    if not _has_own_mounts:
        raise RuntimeError("an attempt's mounts are made in namespaces of its own alone")
    folder = Path.cwd()
    limits = closed_of(["/", *closed], data_dir=data_dir, own=own)
    _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    _cover_run([*readable, *writable, *_GPU_SOCKETS], limits)
    shown_writable = [path for path in writable if path != _SHM and not (temporary_at and path == temporary)]
    if temporary_at:
        _show_temporary(temporary, temporary_at, [*readable, *shown_writable], limits, shown)
    _mount("shm", _SHM, kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV, data="mode=1777")
    _mount("devpts", _TERMINALS, kind="devpts", flags=_MS_NOSUID | _MS_NOEXEC, data="newinstance,ptmxmode=0666")
    if not Path(_NEW_TERMINAL).is_symlink():  # to the one in the folder
        _mount(f"{_TERMINALS}/ptmx", _NEW_TERMINAL, flags=_MS_BIND)
    if pids:
        _mount("proc", _PROC, kind="proc", flags=_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    for path in shown_writable:
        with _opened(path, limits) as place:
            _mount(place, place, flags=_MS_BIND | _MS_REC)
    _set_read_only("/", _AT_RECURSIVE, read_only=True)
    for path in (_SHM, _TERMINALS, *temporary_at):
        _set_read_only(path, 0, read_only=False)
    for path in shown_writable:
        with _opened(path, limits) as place:
            _set_read_only(place, 0, read_only=False)
    # The mount of before would stay below this process.
    try:
        enter_real(str(folder))
    except OSError:
        os.chdir("/")
    _reopen_stdin()


def allowed() -> Namespaces:
    """Returns what this host allows. Tries it in a child, so no other thread may run."""
    if os.uname().machine in _CLONE and _works(lambda: _try(pids=True)):
        return Namespaces(mounts=True, pids=True)
    return Namespaces(mounts=_works(lambda: _try(pids=False)), pids=False)


def _clone(flags: int) -> int:
    """Forks as Python does, but with flags: see `os_fork_impl` in Python's posixmodule.c."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    arguments = (ctypes.c_long(value) for value in (_CLONE[os.uname().machine], flags | signal.SIGCHLD, 0, 0, 0, 0))
    pid = int(_libc_with_lock.syscall(*arguments))
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    number = ctypes.get_errno()
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        _raise("clone", number)
    return pid


def _map(user: int, group: int) -> None:
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _try(*, pids: bool) -> None:
    inspection.permit()
    unshare(pids=pids)
    if not pids:
        make_mounts([], pids=False)
    elif not _works(lambda: make_mounts([], pids=True)):
        raise PermissionError("no mount of /proc")


def _works(function: Callable[[], None]) -> bool:
    """Calls the function in a child. Returns whether it ended without an error."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


def _cover_run(kept: Sequence[str], closed: Closed) -> None:
    """Covers `/run` with an empty folder that has the existing paths of `kept` alone."""
    if not os.path.isdir(_RUN) or os.path.islink(_RUN):  # noqa: PTH112, PTH114 its name alone matters
        return
    opened = _open_below(_RUN, kept, closed)
    _mount("run", _RUN, kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV, data="mode=0755")
    _attach(opened)


def _show_temporary(
    temporary: str, folders: Sequence[str], kept: Sequence[str], closed: Closed, shown: Sequence[str]
) -> None:
    """Shows the temporary folder in place of each of the `folders`, with what exists of `kept` and `shown` in it.

    A rule of Landlock for that folder is one for all that is mounted below it, so nothing else may be mounted there.
    """
    with _opened(temporary, closed) as place:
        opened = {folder: _open_below(folder, kept, closed) for folder in folders}
        for folder, known in opened.items():
            known.update({Path(path): open_real(path) for path in shown if path.startswith(f"{folder}/")})
        for folder, known in opened.items():
            _mount(place, folder, flags=_MS_BIND)
            _attach_hidden(Path(folder), known)


def _attach_hidden(folder: Path, opened: Mapping[Path, int]) -> None:
    """Mounts what is open at its paths, behind folders that nobody can list or change: they are no part of `folder`.

    They lie in file systems in memory, one for each name in `folder`, which become read-only with all others.
    """
    for top in {folder / path.relative_to(folder).parts[0] for path in opened} - opened.keys():
        if not top.is_dir() or top.is_symlink():
            top.mkdir()
        _mount("hidden", str(top), kind="tmpfs", flags=_MS_NOSUID | _MS_NODEV, data="mode=0711")
    _attach(opened)
    between = {outer for path in opened for outer in path.parents if folder in outer.parents} - opened.keys()
    for outer in between:
        outer.chmod(0o111)


def _open_below(folder: str, kept: Sequence[str], closed: Closed) -> dict[Path, int]:
    """Returns descriptors of the outermost existing paths of `kept` that lie in a folder."""
    opened: dict[Path, int] = {}
    for path in sorted({Path(path) for path in kept if path.startswith(f"{folder}/")}):
        if not any(path.is_relative_to(other) for other in opened):
            try:
                opened[path] = open_allowed(str(path), closed)
            except FileNotFoundError:
                continue
            except PermissionError as error:
                if error.errno == errno.EPERM:  # it is closed; what this user cannot reach, the attempt cannot either
                    raise
    return opened


def _attach(opened: Mapping[Path, int]) -> None:
    """Mounts what is open at the paths that it had. Closes the descriptors."""
    for path, descriptor in opened.items():
        source = Path(f"/proc/self/fd/{descriptor}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(exist_ok=True) if source.is_dir() else path.touch()
        _mount(str(source), str(path), flags=_MS_BIND | _MS_REC)
        os.close(descriptor)


@contextmanager
def _opened(path: str, closed: Closed) -> Generator[str]:
    """Yields a name that leads to the file or folder at a canonical path, whatever its own names become."""
    descriptor = open_allowed(path, closed)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _reopen_stdin() -> None:
    """Replaces a descriptor of `/dev/null` from outside: as root, it would allow to change the mode of the host's."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)


def _mount(source: str, target: str, *, flags: int, kind: str = "", data: str = "") -> None:
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    _check(f"mount {target}", _libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]))


def _set_read_only(path: str, flags: int, *, read_only: bool) -> None:
    """Sets or clears the attribute of the mount at `path`, as mount_setattr(2) does."""
    attributes = struct.pack("=QQQQ", _RDONLY if read_only else 0, 0 if read_only else _RDONLY, 0, 0)
    result = _libc.syscall(
        _MOUNT_SETATTR,
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_uint(flags),
        ctypes.c_char_p(attributes),
        ctypes.c_size_t(len(attributes)),
    )
    _check(f"mount_setattr {path}", result)


def _check(call: str, result: int) -> None:
    if result != 0:
        _raise(call, ctypes.get_errno())


def _raise(call: str, number: int) -> NoReturn:
    raise OSError(number, f"{call}: {os.strerror(number)}")
