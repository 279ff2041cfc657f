"""What processes are, by what `/proc` says of their commands. They may forge it: it decides only who gets a signal."""

import functools
from pathlib import Path
import re
import signal

_SHELLS = "sh bash dash ash zsh ksh mksh fish tcsh csh busybox"
_WRAPPERS = "timeout make parallel flock script sudo tini dumb-init catatonit just task"
_ENVIRONMENTS = "uv uvx pixi conda mamba micromamba poetry pdm hatch pipenv"
_MPI = "mpirun mpiexec mpiexec.hydra hydra_pmi_proxy orterun orted prterun prte prted srun horovodrun"
_OF_PYTORCH = (
    "torchrun torch.distributed.run torch.distributed.launch fabric"
    " accelerate accelerate-launch accelerate.commands.launch accelerate.commands.accelerate_cli"
    " deepspeed deepspeed.launcher.runner deepspeed.launcher.launch"
)
_LAUNCHERS = frozenset(" ".join((_SHELLS, _WRAPPERS, _ENVIRONMENTS, _MPI, _OF_PYTORCH)).split())
"""Programs, scripts and modules that only start others, and may end them once they get SIGTERM."""
_CHILD_OF_MULTIPROCESSING = re.compile(
    r"--multiprocessing-fork|\bmultiprocessing\.(?:forkserver|resource_tracker|semaphore_tracker)\b"
    r"|\bloky\.backend\b|\btorch[./]_inductor[./]compile_worker\b"
)
_DATA_LOADER = "pt_data_worker"
"""How PyTorch names the processes of a data loader, which have a handler of SIGTERM in C."""
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?")
_RANK = "torchyard:"
"""Begins the title of a rank."""
_MODULE = re.compile(r"-[bBdEiIOPqRsSuvx]*m(.*)")
_TEXT = re.compile(r"-[bBdEiIOPqRsSuvx]*c.*", re.DOTALL)
_OPTIONS_WITH_VALUE = frozenset({"-W", "-X"})
_CAUGHT = re.compile(rb"^SigCgt:\s+([0-9a-f]+)$", re.MULTILINE)
_MOST_READ = 1 << 16
"""Bytes. A command may have two million."""
_START_OF_STACK = 25
"""Its place in `/proc/PID/stat`, after the name."""


class Commands:
    """Reads each process once. Of a process that has ended it knows nothing."""

    def __init__(self) -> None:
        self._argv = functools.cache(_read_argv)
        self._stack = functools.cache(_read_start_of_stack)

    def launches(self, pid: int) -> bool:
        """Whether it only starts others, by its name."""
        return _name(self._argv(pid)) in _LAUNCHERS

    def is_python(self, pid: int) -> bool:
        argv = self._argv(pid)
        return bool(argv) and (_is_python(argv[0]) or argv[0].startswith(_RANK))

    def is_child_of_multiprocessing(self, pid: int, parent: int) -> bool:
        """Whether it is a fork of its parent, or was started by multiprocessing."""
        argv, stack = self._argv(pid), self._stack(pid)
        if _CHILD_OF_MULTIPROCESSING.search(" ".join(argv)):
            return True
        if stack is None:  # another user's
            return bool(argv) and argv == self._argv(parent)
        return stack == self._stack(parent)

    def loads_data(self, pid: int) -> bool:
        return _read(pid, "comm").strip() == _DATA_LOADER.encode()

    def handles_sigterm(self, pid: int) -> bool:
        mask = _CAUGHT.search(_read(pid, "status"))
        return mask is not None and bool(int(mask[1], 16) & (1 << (signal.SIGTERM - 1)))


def _read_argv(pid: int) -> list[str]:
    return [part.decode("utf-8", "replace") for part in _read(pid, "cmdline").rstrip(b"\0").split(b"\0")]


def _read_start_of_stack(pid: int) -> int | None:
    """Returns where its stack begins: another address after each start of a program, and that of the parent in a fork.

    None if this user may not know it.
    """
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    address = int(fields[_START_OF_STACK]) if len(fields) > _START_OF_STACK else 0
    return address if address > 1 else None


def _read(pid: int, name: str) -> bytes:
    try:
        with Path(f"/proc/{pid}/{name}").open("rb", buffering=0) as file:
            return file.read(_MOST_READ)
    except OSError:
        return b""


def _name(argv: list[str]) -> str:
    """Returns the name of the program, or of the script or module that Python runs."""
    if not _is_python(argv[0]):
        return Path(argv[0]).name.removeprefix("-")
    rest = iter(argv[1:])
    for argument in rest:
        if argument in _OPTIONS_WITH_VALUE:
            next(rest, None)
        elif (module := _MODULE.fullmatch(argument)) is not None:
            return module[1] or next(rest, "")
        elif _TEXT.fullmatch(argument) is not None:
            return ""
        elif not argument.startswith("-"):
            return Path(argument).name
    return ""


def _is_python(program: str) -> bool:
    return _PYTHON.fullmatch(Path(program).name) is not None
