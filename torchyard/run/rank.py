"""The start of every rank: `python -P -u -m torchyard.run.rank SCRIPT [ARGS…]`, or `… -m MODULE [ARGS…]`.

It sets the process title, redirects the output to log files, writes the rank's record into the run directory, runs the
program in a `__main__` module of its own, as Python itself would, and records an exception that leaves it.
"""

import errno
import faulthandler
import io
import json
import os
from pathlib import Path
import runpy
import signal
import socket
import sys
import time
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn

from torchyard.contract.attempts.last_error import device_fault
from torchyard.contract.attempts.records import RankError
from torchyard.contract.attempts.rundir import STACKS_SIGNAL, Env, RunDir, process_title
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.states import EndReason
from torchyard.contract.wire.codec import Record
from torchyard.contract.wire.text import storable
from torchyard.host import disk
from torchyard.host.identity import identity_of
from torchyard.host.recordfiles import write_record
from torchyard.run import order
from torchyard.run.current import flush, has_finished
from torchyard.run.exiting import leave
from torchyard.run.importing import extend_path
from torchyard.run.memory import describe_shortage
from torchyard.run.outofmemory import short_memory
from torchyard.run.traces import traceback_of

if TYPE_CHECKING:
    from torchyard.contract.recipes import Recipe

MESSAGE_LIMIT = 4_000

_SECRETS_S = 60.0  # how long the supervisor may take to answer
_FULL_DISK_S = 60.0  # how long a record of this rank waits for a full disk
_ABOVE = (
    ". It lies above the job's working folder, which is a copy of what was uploaded. Upload the folder above, and start"
    " the program in its own one: torchyard run -- sh -c 'cd FOLDER && python PROGRAM'"
)
"""Said of a path such as ../data: no operator can allow it, as a job has its working folder for itself."""

_TEMPORARIES = ("/tmp", "/var/tmp")  # noqa: S108 as programs name them
_LINES = 3  # lines kept of the message of a GPU's allocator
_SMALLER_RECIPE = "lower training.per_device_batch_size, or set training.auto_batch"
_SMALLER_SCRIPT = "take smaller batches"
_NOT_THE_USERS = {__file__, runpy.__file__, "<frozen runpy>"}

_Reason = Literal[
    EndReason.USER_ERROR,
    EndReason.OUT_OF_MEMORY,
    EndReason.DATA_ERROR,
    EndReason.CONFIG_ERROR,
    EndReason.DEVICE_FAULT,
    EndReason.WORKER_LOST,
]


def main() -> NoReturn:
    """Runs the program in `sys.argv`, and ends the process with its exit code, as Python would."""
    rank = int(os.environ["RANK"])
    run_dir = RunDir.of_job(Path(os.environ[Env.RUN_DIR]))
    _set_title(process_title(os.environ[Env.JOB_ID], int(os.environ[Env.ATTEMPT]), f"rank {rank}"))
    redirect(run_dir, rank)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _show_stacks_on_request(run_dir, rank)
    process = os.getpid()
    identity = identity_of(process)
    if identity is None:
        sys.exit("/proc does not show this process")
    write(run_dir.ranks / f"{rank}.json", identity)
    code = 0
    try:
        ask_for_secrets()
        _run_and_flush(sys.argv[1:])
    except SystemExit as error:
        error.__traceback__ = _users_part(error.__traceback__)
        code = _code(error)
        if os.getpid() == process and code:
            record_error(run_dir, rank, error)
    except BaseException as error:  # noqa: BLE001 every exception is shown as Python would
        error.__traceback__ = _users_part(error.__traceback__)
        if os.getpid() == process:  # a forked child that came here is not the rank
            record_error(run_dir, rank, error)
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if os.getpid() == process and not code:
        _mark_finished(run_dir, rank)
    leave(code)


def _show_stacks_on_request(run_dir: RunDir, rank: int) -> None:
    """Registers the handler that appends the stacks of all threads to a file. Without the file there is no handler.

    The file stays open until the process ends.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(run_dir.stacks / f"{rank}.txt", flags, 0o600)
    except OSError as failure:
        print(f"torchyard: stacks cannot be shown: {failure}", file=sys.stderr)  # noqa: T201
    else:
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True)


def ask_for_secrets() -> None:
    """Sets the variables that the supervisor gives to its ranks alone. Raises OSError."""
    path = os.environ.pop(Env.SECRETS, None)
    if path is None:
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # noqa: PTH120 - as below
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SECRETS_S)
        # By its folder's descriptor, because a socket's path has at most 107 bytes.
        connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")  # noqa: PTH119
        os.close(folder)
        content = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    os.environ.update(json.loads(content))


def _set_title(title: str) -> None:
    try:
        from setproctitle import setproctitle
    except ImportError:  # an environment of the script's own: the rank is found by its variables
        return
    setproctitle(title)


def redirect(run_dir: RunDir, rank: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        name = stream.name.strip("<>")
        log = os.open(run_dir.log(f"rank-{rank}", name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(log, stream.fileno(), inheritable=True)
        os.close(log)
    try:
        order.begin(run_dir.log(f"rank-{rank}", "order"))
    except (OSError, ValueError) as failure:
        print(f"torchyard: the order of stdout and stderr cannot be noted: {failure}", file=sys.stderr)  # noqa: T201


def _code(error: SystemExit) -> int:
    """Returns the exit code that Python uses, and prints a code that is not a number."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF if error.code.bit_length() < 64 else 0xFF
    print(error.code, file=sys.stderr)  # noqa: T201
    return 1


def _run_and_flush(arguments: list[str]) -> None:
    """Runs the program and flushes: a checkpoint that cannot be published fails the rank."""
    try:
        _run(arguments)
    except SystemExit as left:
        if left.code in (None, 0):
            flush()
        raise
    flush()


def _run(arguments: list[str]) -> None:
    main_module = ModuleType("__main__")
    sys.modules["__main__"] = main_module
    if "__mp_main__" in sys.modules:  # in a fork: multiprocessing names it so when it is imported, for its pickles
        sys.modules["__mp_main__"] = main_module
    if Env.DATA not in os.environ:  # a recipe's program is one of ours
        extend_path()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        if Env.DATA not in os.environ:
            sys.path.insert(0, str(Path.cwd()))
        runpy._run_module_as_main(arguments[1])  # pyright: ignore # what `python -m` itself calls
        return
    script = Path(arguments[0]).absolute()
    sys.argv = arguments
    sys.path.insert(0, str(script.resolve().parent))
    main_module.__file__ = str(script)
    with io.open_code(str(script)) as file:
        code = compile(file.read(), str(script), "exec", dont_inherit=True)
    exec(code, main_module.__dict__)  # noqa: S102 running the user's program is the purpose


def _mark_finished(run_dir: RunDir, rank: int) -> None:
    """Records that the program has finished, so that a stop which comes now does not make it run again."""
    try:
        if has_finished(run_dir):
            run_dir.finished(rank).touch()
    except OSError as failure:
        print(f"torchyard: the end could not be recorded: {failure}", file=sys.stderr)  # noqa: T201


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename in _NOT_THE_USERS:
        trace = trace.tb_next
    return trace


def record_error(run_dir: RunDir, rank: int, error: BaseException) -> None:
    reason = _reason(error)
    message = _explained(error, reason)
    record = RankError(
        rank=rank,
        time=time.time_ns() // 1000,
        reason=reason,
        type=storable(type(error).__qualname__),
        message=storable(message)[:MESSAGE_LIMIT],
        traceback=storable(traceback_of(error, own_frames=Env.DATA in os.environ)),
    )
    try:
        write(run_dir.errors / f"{rank}.json", record)
    except OSError as failure:
        print(f"torchyard: the error could not be recorded: {failure}", file=sys.stderr)  # noqa: T201


def write(path: Path, record: Record) -> None:
    """Writes a record, and waits for a full disk: nobody else knows what it says. Raises OSError."""
    disk.retry_while_unavailable(lambda: write_record(path, record), seconds=_FULL_DISK_S, on_error=lambda _: None)


def _reason(error: BaseException) -> _Reason:
    if isinstance(error, DataError):
        return EndReason.DATA_ERROR
    if isinstance(error, ConfigError):
        return EndReason.CONFIG_ERROR
    if short_memory(error) is not None:
        return EndReason.OUT_OF_MEMORY
    if isinstance(error, RuntimeError) and device_fault(_message(error)) is not None:  # as all errors of torch are
        return EndReason.DEVICE_FAULT
    if disk.full_disk_error(error) is not None:  # the host's trouble: it does not count as a restart
        return EndReason.WORKER_LOST
    return EndReason.USER_ERROR


def _explained(error: BaseException, reason: EndReason) -> str:
    if reason is EndReason.OUT_OF_MEMORY:
        return _shortage(error)
    if reason is EndReason.WORKER_LOST:
        return f"a disk of the worker is full: {disk.full_disk_error(error)}"
    return _message(error) + _sandbox_advice(error)


def _sandbox_advice(error: BaseException) -> str:
    """Says how a path is reached, for an error that the sandbox or the copy of the folder may have caused."""
    if Env.ISOLATION not in os.environ or not isinstance(error, OSError) or not error.filename:
        return ""
    refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    if not refused and error.errno != errno.ENOENT:
        return ""
    named = Path(os.getcwd(), os.fsdecode(error.filename))  # noqa: PTH109 it keeps the `..` of the name
    path = Path(os.path.abspath(named))  # noqa: PTH100 as the program wrote it, whatever is a link
    work = RunDir.of_job(Path(os.environ[Env.RUN_DIR])).work
    if named.is_relative_to(work) and not path.is_relative_to(work):
        return _ABOVE
    if not refused:
        return ""
    folder = str(path.parent)
    if folder in _TEMPORARIES:
        return f". Jobs have a temporary folder of their own: the variable TMPDIR, {os.environ.get('TMPDIR', '')}"
    return (
        f". Jobs write to TORCHYARD_RUN_DIR, and read what the worker's operator allows: --allow-path {folder},"
        f" or --allow-path {folder}:rw to write"
    )


def _shortage(error: BaseException) -> str:
    """Says how much memory was wanted, how much is free, and what to do. A GPU's allocator says the first two."""
    text = _message(error)
    known = describe_shortage(text) if short_memory(error) == "host" else "\n".join(text.splitlines()[:_LINES])
    advice = _smaller_recipe() if Env.DATA in os.environ else _SMALLER_SCRIPT
    return f"{known.rstrip('.')}: {advice}" if known else advice


def _smaller_recipe() -> str:
    """Says which keys of the job's recipe to change, the first to try first."""
    try:
        recipe = _recipe()
    except Exception:  # noqa: BLE001 there is little memory, and the error itself is to be told
        return _SMALLER_RECIPE
    training = recipe.training
    chosen = training.auto_batch or recipe.distributed.strategy == "fsdp"
    batch = _SMALLER_RECIPE.partition(",")[0] if chosen else _SMALLER_RECIPE
    single = training.per_device_batch_size == 1
    return "; or ".join([*([] if single and recipe.less_memory else [batch]), *recipe.less_memory])


def _recipe() -> "Recipe":
    """Returns the job's configuration. Raises what a file that is none does."""
    from torchyard.contract.recipes import REGISTRY  # a recipe's rank has imported it

    job = json.loads(Path(os.environ[Env.CONFIG]).read_bytes())
    return REGISTRY[job["trainer"]].config.model_validate(job["config"])


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        return f"exited with code {error.code}"
    if isinstance(error, SystemExit) and isinstance(error.code, str):
        return error.code.removeprefix(f"{sys.executable}: ")  # as runpy begins what it says
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 the user's own __str__
        return f"<the message cannot be shown: its __str__ raised {type(broken).__name__}>"


if __name__ == "__main__":
    main()
