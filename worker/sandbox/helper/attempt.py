"""One attempt of the helper: a process of root that starts it, watches it and the client, and kills it."""

from collections.abc import Generator, Mapping, Sequence
import contextlib
from contextlib import ExitStack, contextmanager
import json
import os
from pathlib import Path
import select
import signal
import socket
from typing import NoReturn

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from worker.host import process
from worker.sandbox import privileges, seccomp, shared
from worker.sandbox.helper import bubblewrap, mounts
from worker.sandbox.helper.attempt_mounts import DetachedMount, mounts_of
from worker.sandbox.helper.bubblewrap import Bind, Box
from worker.sandbox.helper.cgroups import Group
from worker.sandbox.helper.config import Config
from worker.sandbox.helper.orders import Order, read_order
from worker.sandbox.strict.protocol import Ended, Refusal, Start, Started, send

_LONGEST_INFO = 1 << 16
_STAGING = Path("/tmp")  # noqa: S108 a mount point that exists everywhere, in mounts that are the attempt's own


def run(config: Config, connection: socket.socket, start: Start) -> None:
    """Runs an attempt until it ends or the client does. Then nothing of it is left.

    This process must have one thread and no child. Raises Refusal and OSError if the attempt cannot be started.
    """
    process.become_subreaper()
    with ExitStack() as stack:
        order = read_order(config, start, stack)
        uid = config.state.uid_of(order.owner)
        stack.enter_context(config.state.claimed(order.key))
        group = config.cgroups.create(order.key, cpus=order.plan.cpus, memory=order.plan.memory_bytes)
        try:
            with _launched(config, order, uid, group) as (bwrap, init):
                config.state.note_init(order.key, init)
                send(connection, Started(init=init, uid=uid))
                _wait(connection, bwrap)
                exit_code = _kill(bwrap, init, group)
        finally:
            _kill_children(group)
    with contextlib.suppress(OSError):  # the client has ended
        send(connection, Ended(exit_code=exit_code))


@contextmanager
def _launched(config: Config, order: Order, uid: int, group: Group | None) -> Generator[tuple[int, ProcessIdentity]]:
    """Starts bubblewrap, and yields its pid and the first process inside."""
    with ExitStack() as stack:
        detached = mounts_of(config, order, uid=uid, stack=stack)
        info, write_end = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, info)
        trouble, failed = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, trouble)
        bwrap = os.fork()
        if bwrap == 0:
            _become(config, order, uid, group, detached, info=write_end, failed=failed)
        os.close(write_end)
        os.close(failed)
        why = os.read(trouble, _LONGEST_INFO)
        if why:
            raise Refusal(why.decode(errors="replace"))
        yield bwrap, _init(info)


def _become(
    config: Config,
    order: Order,
    uid: int,
    group: Group | None,
    detached: Sequence[DetachedMount],
    *,
    info: int,
    failed: int,
) -> NoReturn:
    """Makes this child bubblewrap, as the attempt's user. Says in `failed` why it cannot."""
    try:
        if group is not None:
            group.add(os.getpid())
        box = _box(config, order, uid, _attach(detached))
        job = next(bind.source for bind in box.binds if bind.target == str(order.job.path))
        privileges.limit_resources()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.umask(order.plan.umask)
        _redirect(order, Path(job))
        os.set_inheritable(info, True)
        given = _memory("\0".join(bubblewrap.options(box, info=info)).encode())
        command = bubblewrap.command(box, order.plan.argv)
        os.execve(config.bwrap, [config.bwrap, "--args", str(given), "--", *command], {})  # noqa: S606
    except BaseException as error:  # noqa: BLE001 nothing may return into the frames of the parent
        os.write(failed, f"the attempt's sandbox cannot be made: {error}".encode())
    finally:
        os._exit(1)


def _attach(detached: Sequence[DetachedMount]) -> list[Bind]:
    """Attaches the mounts where bubblewrap, as the attempt's user, can reach them, and nobody else."""
    mounts.enter_private(_STAGING)
    binds: list[Bind] = []
    for number, each in enumerate(detached):
        target = _STAGING / str(number)
        target.mkdir() if each.is_folder else target.touch()
        mounts.attach(each.mount, target)
        binds.append(Bind(source=str(target), target=str(each.path), writable=each.writable))
    return binds


def _box(config: Config, order: Order, uid: int, binds: Sequence[Bind]) -> Box:
    files = _user_files(uid, order)
    system = [path for path in shared.of_system() if path.exists() and str(path) not in files]
    return Box(
        env=order.plan.env,
        cwd=order.plan.cwd,
        network=config.network,
        shm=config.shm,
        system=system,
        binds=binds,
        devices=order.devices,
        files=files,
        filter=_memory(seccomp.program(others=False)) if seccomp.is_allowed() else None,
    )


def _user_files(uid: int, order: Order) -> Mapping[str, int]:
    """Returns descriptors of `/etc/passwd` and `/etc/group` with the attempt's user alone."""
    user = f"job:x:{uid}:{uid}::{order.home.path}:/bin/sh\n"
    return {"/etc/passwd": _memory(user.encode()), "/etc/group": _memory(f"job:x:{uid}:\n".encode())}


def _memory(content: bytes) -> int:
    """Returns a descriptor of an anonymous file, which the next program inherits."""
    descriptor = os.memfd_create("torchyard", 0)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
        file.flush()
        file.seek(0)
    return descriptor


def _redirect(order: Order, job: Path) -> None:
    """Sends the output to the launcher's log, which the attempt's user opens."""
    run = RunDir(order.job.path.parent)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    for descriptor, stream in enumerate(("stdout", "stderr"), start=1):
        path = job / run.log("launcher", stream).relative_to(run.job)
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), descriptor)


def _init(info: int) -> ProcessIdentity:
    """Returns the first process inside, as bubblewrap tells it. Raises Refusal if there is none."""
    content = b""
    while not content.rstrip().endswith(b"}") and (part := os.read(info, _LONGEST_INFO)):
        content += part
    init = process.identity(json.loads(content)["child-pid"]) if content else None
    if init is None:
        raise Refusal("bubblewrap ended at once: the launcher's log says why")
    return init


def _wait(connection: socket.socket, bwrap: int) -> None:
    """Waits until bubblewrap or the client ends, or the client asks for the end."""
    pidfd = os.pidfd_open(bwrap)
    try:
        poll = select.poll()
        for descriptor in (pidfd, connection.fileno()):
            poll.register(descriptor, select.POLLIN)
        poll.poll()
    finally:
        os.close(pidfd)


def _kill(bwrap: int, init: ProcessIdentity, group: Group | None) -> int:
    """Kills the attempt and waits for its last process. Returns the launcher's exit code."""
    process.send(init, signal.SIGKILL)  # the kernel then kills all that is in its namespace
    _, status = os.waitpid(bwrap, 0)
    _kill_children(group)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code > 128 else code  # so a program's shell shows the signal that killed it


def _kill_children(group: Group | None) -> None:
    """Kills what this process and the group have, and waits for it."""
    for child in process.descendants(os.getpid()):
        process.send(child, signal.SIGKILL)
    if group is not None:
        group.kill()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    if group is not None:
        group.remove()
