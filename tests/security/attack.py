"""The attacker's job: a script that tries what a review had proved, and writes what came of each attempt.

`attack.py TARGETS`: TARGETS is a JSON file with the paths, pids and addresses. The result is `attacks.json` in the run
directory: `refused: …`, or what the attacker got.
"""

from collections.abc import Callable
import contextlib
import ctypes
import errno
import fcntl
import http.client
import json
import os
from pathlib import Path
import resource
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from typing import Any

TARGETS: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
RUN = Path(os.environ["TORCHYARD_RUN_DIR"])
DATA = Path(TARGETS["data"])
HOME = Path(TARGETS["home"])
LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_O_TRACEEXIT = 16, 17, 0x4206, 0x40
PIDFD_GETFD = 438
IOPRIO_SET, ADD_KEY, CLONE = (251, 248, 56) if os.uname().machine == "x86_64" else (30, 217, 220)
CLONE3, CLONE_NEWUSER, CLONE_NEWUTS = 435, 0x10000000, 0x04000000
Attack = Callable[[], object]


def main() -> None:
    found: dict[str, str] = {}
    for name, attack in attacks().items():
        try:
            found[name] = f"got {attack()!r}"[:300]
        except FileNotFoundError as error:
            found[name] = f"{_absent(error)}: {error}"
        except (OSError, sqlite3.Error, http.client.HTTPException) as error:
            found[name] = f"refused: {error}"
    (RUN / "attacks.json").write_text(json.dumps(found))


def _absent(error: FileNotFoundError) -> str:
    """Says what it shows that a path is not there: the test has seen all below the `hidden` folders from outside."""
    path = Path(os.fsdecode(error.filename or b""))
    hidden = any(path.is_relative_to(folder) for folder in TARGETS.get("hidden", ()))
    return "refused, as it is hidden" if hidden else "absent, so that this shows nothing"


def attacks() -> dict[str, Attack]:
    groups = {group.__name__: group for group in (files, changes, processes, limits, servers, neighbour, privileges)}
    return {name: attack for group in TARGETS.get("groups", groups) for name, attack in groups[group]().items()}


def files() -> dict[str, Attack]:
    """Reads what is not the job's own."""
    read: dict[str, Path] = {path: DATA / path for path in TARGETS["secret_files"]}
    read |= {f"~/{path}": HOME / path for path in TARGETS["home_files"]}
    read |= {"own plan": RUN.parent / "ctl/plan.json", "/etc/shadow": Path("/etc/shadow")}
    listed = {"runs": DATA / "runs", "blobs": DATA / "blobs", "data": DATA, "home": HOME, "own ctl": RUN.parent / "ctl"}
    listed |= {"another run": Path(TARGETS["another_run"]), "/tmp": Path(TARGETS["temporary"])}
    return {f"read {name}": _call(path.read_bytes) for name, path in read.items()} | {
        f"list {name}": _call(os.listdir, path) for name, path in listed.items()
    }


def changes() -> dict[str, Attack]:
    """Changes what is not the job's own."""
    token, input_ = DATA / "token", RUN.parent / "input"
    control = (RUN.parent / "ctl/exit.json", RUN.parent / "ctl/shown/stop.json")
    outside = (DATA / "x", RUN.parent / "x", *control, input_ / "x")
    outside += (HOME / ".bashrc", Path(TARGETS["code"], "x"), Path(TARGETS["temporary"], "torchyard-attack"))
    return {f"write {path}": _call(path.write_text, "x") for path in outside} | {
        "write a table": _write_table,
        "truncate the token": _call(os.truncate, token, 0),
        "open the token to all": _call(os.chmod, token, 0o666),
        "age the token": _call(_age, token),
        "remove the token": _call(os.unlink, token),
        "rename the token": _call(os.rename, token, RUN / "token"),
        "link the token": _call(os.link, token, RUN / "linked"),
        "link to the token": _read_by_link,
        "replace the control files": _call(os.rename, RUN.parent / "ctl", RUN.parent / "old"),
        "change the configuration": _call(os.chmod, input_ / "config.json", 0o600),
        "close the data directory": _call(os.chmod, DATA, 0),
    }


def processes() -> dict[str, Attack]:
    """Inspects, signals and attaches to processes of the same user."""
    found: dict[str, Attack] = {}
    for name, (pid, start_time) in _victims(inspected=True).items():
        folder = Path(f"/proc/{pid}")
        calls = {f"{file} of {name}": _call((folder / file).read_bytes) for file in ("environ", "maps", "auxv")} | {
            f"memory of {name}": _call(_read_memory, folder),
            f"what {name} has open": _call(os.readlink, folder / "fd" / "1"),
            f"a file that {name} has open": _call((folder / "fd" / "1").open),
            f"a descriptor of {name}": _call(_take_descriptor, pid),
            f"ptrace of {name}": _call(_attach, pid),
        }
        if pid != 1:
            calls[f"a signal to {name}"] = _call(os.kill, pid, signal.SIGCONT)
        found |= {what: _on(pid, start_time, call) for what, call in calls.items()}
    return found


def limits() -> dict[str, Attack]:
    """Changes limits and priorities of processes of the same user."""
    found: dict[str, Attack] = {"all processes of the user": _slow_down_all}
    for name, (pid, start_time) in _victims().items():
        calls = {
            f"a limit of {name}": _call(_limit, pid),
            f"the priority of {name}": _call(os.setpriority, os.PRIO_PROCESS, pid, 5),
            f"the scheduler of {name}": _call(os.sched_setscheduler, pid, os.SCHED_BATCH, os.sched_param(0)),
            f"the parameters of {name}": _call(os.sched_setparam, pid, os.sched_param(0)),
            f"the disk priority of {name}": _call(_checked, "syscall", IOPRIO_SET, 1, pid, (2 << 13) | 7),
        }
        found |= {what: _on(pid, start_time, call) for what, call in calls.items()}
    return found


def _victims(*, inspected: bool = False) -> dict[str, tuple[int, int]]:
    """Returns pids and start times: those of the service, and that of the supervisor if it is in sight.

    The first process of a pid namespace may be signalled, which does nothing, but not be `inspected`.
    """
    victims = {name: (pid, start_time) for name, (pid, start_time) in TARGETS["processes"].items()}
    grandparent = _stat(os.getppid(), 1)
    name = "the first process" if grandparent == 1 else "the supervisor"
    if name not in victims and grandparent > (0 if inspected else 1):
        victims[name] = (grandparent, _stat(grandparent, 19))
    return victims


def _on(pid: int, start_time: int, attack: Attack) -> Attack:
    """Returns the attack on exactly that process. In a pid namespace, one of the job's own may have its pid."""

    def on_it() -> object:
        try:
            if _stat(pid, 19) != start_time:
                raise ProcessLookupError(f"{pid} is another process here")
        except FileNotFoundError:
            try:
                return attack()
            except FileNotFoundError as error:
                raise ProcessLookupError(f"{pid} is hidden: {error}") from None
        return attack()

    return on_it


def _stat(pid: int, field: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field])


def servers() -> dict[str, Attack]:
    return {
        "Redis": _ping_redis,
        "the API": _call_api,
        "an abstract socket": _connect_abstract,
    } | ({"a socket in /run": _connect_in_run} if TARGETS.get("run_socket") else {})


def neighbour() -> dict[str, Attack]:
    """Reads, changes and enters the attempt of another user, if there is one."""
    if "neighbour" not in TARGETS:
        return {}
    run, kept = Path(TARGETS["neighbour"]["run"]), [Path(path) for path in TARGETS["neighbour"]["kept"]]
    job, control = run / "job", run / "ctl"
    listed = (run, job, run / "input", control, *{path.parent for path in kept})
    read = (job / "own.txt", control / "door.key", control / "plan.json", *kept)
    entered = (control / "door", job / "own.sock")
    return {
        **{f"list {path}": _call(os.listdir, path) for path in listed},
        **{f"read {path}": _call(path.read_bytes) for path in read},
        **{f"change {path}": _call(os.truncate, path, 0) for path in read},
        **{f"remove {path}": _call(path.unlink) for path in read},
        **{f"write into {path}": _call((path / "x").write_text, "x") for path in listed},
        **{f"enter {path}": _call(_connect_at, path) for path in entered},
    }


def privileges() -> dict[str, Attack]:
    return {
        "a mount": _call(_checked, "mount", b"none", os.fsencode(RUN), b"tmpfs", ctypes.c_ulong(0), None),
        "a device": _call(os.mknod, RUN / "sda", 0o060600, os.makedev(8, 0)),
        "another user": _call(os.setuid, 12345),
        "core_pattern": _call(Path("/proc/sys/kernel/core_pattern").write_text, f"|{RUN}/x"),
        "a program of root": _gain_privileges,
        "writable mounts": _call(_in_child, _clear_read_only),
        "a user namespace": _call(_in_child, _enter_user_namespace),
        "a process in a user namespace": _call(_in_child, _clone_into_user_namespace),
        "a process in a user namespace, by clone3": _call(_in_child, _clone3_into_user_namespace),
        "a namespace that is there": _call(_in_child, _enter_namespace),
        "a key of the user": _call(_checked, "syscall", ADD_KEY, b"user", b"torchyard-attack", b"x", 1, -4),
        "the mode of a device": _call(os.fchmod, 0, 0o666),
        "a program that sets the user ID": _set_user_id,
        "a new program that sets the user ID": _create_with_user_id,
        "a stop at the end of a process": _stop_at_the_end,
        "a lease on a file": _take_lease,
        "a socket to the host of this machine": _call(_open_socket, socket.AF_VSOCK),
        "a socket to a modem": _call(_open_socket, 42),
        "io_uring": _call(_checked, "syscall", 425, 1, ctypes.create_string_buffer(120)),
    } | {f"open {path}": _call(_open_terminal, path) for path in TARGETS.get("terminals", ())}


def _call(function: Callable[..., object], *arguments: Any) -> Attack:
    return lambda: function(*arguments)


def _age(path: Path) -> None:
    try:
        os.utime(path, (0, 0))
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from None


def _write_table() -> object:
    with contextlib.closing(sqlite3.connect(DATA / "torchyard.db")) as database:
        return database.execute("CREATE TABLE attack (id INTEGER)").fetchall()


def _read_by_link() -> object:
    (RUN / "symbolic").symlink_to(DATA / "token")
    return (RUN / "symbolic").read_text()


def _read_memory(folder: Path) -> object:
    first = (folder / "maps").read_text().split("-")[0]
    with (folder / "mem").open("rb") as memory:
        memory.seek(int(first, 16))
        return memory.read(16)


def _attach(pid: int) -> object:
    _checked("ptrace", ctypes.c_long(PTRACE_ATTACH), ctypes.c_long(pid), None, None)
    os.waitpid(pid, 0)
    return _checked("ptrace", ctypes.c_long(PTRACE_DETACH), ctypes.c_long(pid), None, None)


def _take_descriptor(pid: int) -> object:
    pidfd = os.pidfd_open(pid)
    return _checked("syscall", PIDFD_GETFD, ctypes.c_int(pidfd), ctypes.c_int(1), ctypes.c_uint(0))


def _set_user_id() -> object:
    program = Path(os.environ["TMPDIR"], "program")
    program.write_bytes(b"")
    program.chmod(0o4755)
    return oct(program.stat().st_mode)


def _create_with_user_id() -> object:
    return os.open(Path(os.environ["TMPDIR"], "created"), os.O_CREAT | os.O_WRONLY, 0o4755)


def _take_lease() -> object:
    """Makes all wait that open a file of this user."""
    path = Path(os.environ["TMPDIR"], "leased")
    path.write_bytes(b"")
    with path.open("rb") as file:
        return fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)


def _open_socket(family: int) -> object:
    kind = socket.SOCK_STREAM if family == socket.AF_VSOCK else socket.SOCK_DGRAM
    try:
        with socket.socket(family, kind) as opened:
            return opened.getsockname()
    except OSError as error:
        if error.errno != errno.EAFNOSUPPORT:
            raise
        raise PermissionError(f"no program is told that there is such a family: {error}") from None


def _stop_at_the_end() -> object:
    """Traces a child, which could not be killed if it traced this process as well."""
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        return _checked("ptrace", *map(ctypes.c_long, (PTRACE_SEIZE, child, 0, PTRACE_O_TRACEEXIT)))
    finally:
        os.kill(child, signal.SIGKILL)


def _connect_in_run() -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            return connection.connect(TARGETS["run_socket"])
        except FileNotFoundError as error:
            raise PermissionError(f"it is hidden: {error}") from None


def _limit(pid: int) -> object:
    return resource.prlimit(pid, resource.RLIMIT_SIGPENDING, resource.getrlimit(resource.RLIMIT_SIGPENDING))


def _slow_down_all() -> object:
    """The test looks at the service's priorities: in a pid namespace, this reaches the job's own processes."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_USER, os.getuid(), 5)
        _checked("syscall", IOPRIO_SET, 3, os.getuid(), (2 << 13) | 7)
    raise PermissionError("as far as the job can see")


def _open_terminal(path: str) -> object:
    """Opens a terminal of another process. Without its own devpts, the job could read and write it."""
    try:
        with Path(path).open("r+b", buffering=0) as terminal:
            return terminal.write(b"x")
    except FileNotFoundError as error:
        raise PermissionError(f"it is hidden: {error}") from None


def _connect_at(path: Path) -> socket.socket:
    """Connects to a Unix socket, however long its path is."""
    connection = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_PATH)
    connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    return connection


def _ping_redis() -> object:
    with _connect_at(Path(TARGETS["redis"])) as connection:
        connection.sendall(b"PING\r\n")
        answer = connection.recv(100)
    if answer.startswith(b"-NOAUTH"):
        raise ConnectionRefusedError(answer.decode().strip())
    return answer


def _call_api() -> object:
    connection = http.client.HTTPConnection(TARGETS["host"], TARGETS["port"], timeout=10)
    connection.request("GET", "/v1/jobs")
    answer = connection.getresponse()
    if answer.status == 401:
        raise ConnectionRefusedError("401")
    return answer.read()


def _connect_abstract() -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect(f"\0{TARGETS['abstract']}")


def _gain_privileges() -> object:
    """Asks a program that root has marked with set-user-ID which capabilities it gets."""
    status = subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    if struct.unpack(">Q", bytes.fromhex(effective))[0] == 0:
        raise PermissionError("it has no capability")
    return effective


def _clear_read_only() -> None:
    """Becomes root of a user namespace of its own, and tries to make all mounts writable there."""
    _checked("unshare", CLONE_NEWUSER | 0x00020000)
    attributes = struct.pack("=QQQQ", 0, 1, 0, 0)
    _checked("syscall", 442, ctypes.c_int(-100), b"/", ctypes.c_uint(0x8000), attributes, ctypes.c_size_t(32))
    Path(TARGETS["code"], "x").write_text("x")


def _enter_user_namespace() -> None:
    """Has capabilities there, as the new name of the host shows."""
    _checked("unshare", CLONE_NEWUSER | CLONE_NEWUTS)
    _checked("sethostname", b"x", ctypes.c_size_t(1))


def _clone_into_user_namespace() -> None:
    if _checked("syscall", CLONE, ctypes.c_ulong(CLONE_NEWUSER | signal.SIGCHLD), None, None, None, None) == 0:
        os._exit(0)


def _clone3_into_user_namespace() -> None:
    arguments = struct.pack("=8Q", CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    if _checked("syscall", CLONE3, arguments, ctypes.c_size_t(len(arguments))) == 0:
        os._exit(0)


def _enter_namespace() -> None:
    descriptor = os.open("/proc/self/ns/uts", os.O_RDONLY)
    _checked("setns", descriptor, 0)


def _in_child(function: Callable[[], None]) -> object:
    child = os.fork()
    if child == 0:
        try:
            function()
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        number = os.waitstatus_to_exitcode(status)
        raise OSError(number, os.strerror(number))
    return "done"


def _checked(name: str, *arguments: Any) -> int:
    result = getattr(LIBC, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
