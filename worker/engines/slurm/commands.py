"""The commands of Slurm as they are called: as argv, with text answers, a deadline each and few variables."""

from collections.abc import Generator, Mapping, Sequence
import contextlib
from dataclasses import dataclass, field
import os
import re
import signal
import subprocess

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF", "LD_LIBRARY_PATH")
_FIXED = {"LANG": "C", "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
_MOST_OUTPUT = 32 << 20
_SHOWN = 500
_SUBMIT_S = 150.0
"""Slurm's own clients wait and try again for up to 100 s."""
_ASK_S = 30.0
_KILL_S = 5.0
"""Seconds to wait for a killed command to end."""
_CANCEL_S = 60.0

KEY = "SLURM_TORCHYARD_KEY"
"""The variable with the key of an attempt, which its coordinator removes."""
SCRIPT = """#!/bin/sh
trap '' USR1
exec "$SLURM_TORCHYARD_PYTHON" -P -m worker.engines.slurm.batch "$SLURM_TORCHYARD_RUN"
"""
"""The batch script of all jobs. The signal that says `look at your files` would end what does not listen yet."""
LISTED = "%i|%T|%r|%S|%N|%j"
_NODES = "%N|%T|%c|%m|%G"

_NOT_SENT = re.compile(
    r"Unable to contact slurm controller|temporarily unable to accept job|Resource temporarily unavailable"
    r"|controller in standby|Protocol authentication error|[Mm]unge|Could not establish a configuration"
    r"|Unable to process configuration|Slurm is in read-only|Job dependency problem"
    r"|QOSMaxSubmitJob|AssocMaxSubmitJob|[Jj]ob violates accounting/QOS policy"
    r"|Unable to (open|write) .*(script|environment)|I/O error writing script"
)
"""Answers of sbatch after which no job exists, and which may pass."""
_REFUSED = re.compile(
    r"[Ii]nvalid (account|partition|qos|feature|reservation|time limit|generic resource|node name|license|Trackable)"
    r"|Requested (reservation|time limit|partition configuration|node configuration) "
    r"(is|not) |Invalid qos|User's group not permitted|Access/permission denied|Node count specification invalid"
    r"|More processors requested than permitted|Memory required by task is not available|Pathname of a file"
    r"|Job size specification needs|does not exist|error: Invalid|Unable to allocate resources: (Invalid|Requested)"
)
"""Answers after which no job exists, and which stay."""


class Refused(Exception):
    """Slurm has said no: no job exists. `passes`: the same request may succeed later."""

    def __init__(self, message: str, *, passes: bool) -> None:
        super().__init__(message)
        self.passes = passes


class NoAnswer(Exception):
    """Slurm has not said whether it did what was asked."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One call of sbatch."""

    options: Sequence[str]
    variables: Mapping[str, str] = field(repr=False)
    """What the batch script gets besides the variables of Slurm. Their names begin with SLURM_TORCHYARD_."""
    script: str = SCRIPT
    """A constant text: values are in variables alone."""


class Commands:
    """Calls the commands that PATH has. `environ`: the variables of the daemon."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._env = {name: environ[name] for name in _INHERITED if name in environ} | _FIXED
        self._user = str(os.getuid())

    def submit(self, submission: Submission) -> None:
        """Submits a job. Raises Refused, and NoAnswer if the job may exist all the same."""
        # Not among the variables of sbatch: other processes of this user may read those.
        with _in_memory(submission.variables) as descriptor:
            argv = ["sbatch", "--parsable", "--export=ALL", f"--export-file={descriptor}", *submission.options]
            code, output, error = self._run(argv, seconds=_SUBMIT_S, keep=(descriptor,), text=submission.script)
        if code == 0 and re.match(r"[0-9]{1,19}\b", output):
            return
        said = _shown(error or output)
        if _NOT_SENT.search(said):
            raise Refused(said, passes=True)
        if _REFUSED.search(said):
            raise Refused(said, passes=False)
        raise NoAnswer(said or f"sbatch failed with exit code {code} and no message")

    def list_jobs(self) -> str:
        """Returns a line, as LISTED, for each job of this user that Slurm remembers. Raises NoAnswer."""
        return self._ask(["squeue", "--noheader", "--states=all", f"--user={self._user}", f"--format={LISTED}"])

    def cancel(self, name: str, *, pending: bool = False) -> None:
        """Ends the jobs with this name. `pending`: only those that do not run. Raises NoAnswer."""
        state = ["--state=PENDING"] if pending else []
        self._ask(["scancel", f"--user={self._user}", f"--name={name}", *state], seconds=_CANCEL_S)

    def terminate(self, name: str) -> None:
        """Has the coordinator of a job that runs end it, with the grace of its plan. Raises NoAnswer."""
        argv = ["scancel", f"--user={self._user}", f"--name={name}", "--state=RUNNING", "--signal=TERM", "--batch"]
        self._ask(argv, seconds=_CANCEL_S)

    def notify(self, name: str) -> None:
        """Signals the coordinator of a job that runs: there is something new in its files. Raises NoAnswer."""
        argv = ["scancel", f"--user={self._user}", f"--name={name}", "--state=RUNNING", "--signal=USR1", "--batch"]
        self._ask(argv, seconds=_CANCEL_S)

    def nodes(self, partition: str) -> str:
        """Returns a line for each node: its name, state, CPUs, MiB of memory and generic resources. Raises NoAnswer."""
        return self._ask(["sinfo", "--noheader", "--Node", f"--partition={partition}", f"--format={_NODES}"])

    def partition(self, name: str) -> str:
        """Returns what scontrol says of the partition, in one line. Raises NoAnswer, also if there is none."""
        return self._ask(["scontrol", "show", "partition", name, "--oneliner"])

    def _ask(self, argv: Sequence[str], *, seconds: float = _ASK_S) -> str:
        code, output, error = self._run(argv, seconds=seconds)
        if code != 0:
            raise NoAnswer(f"{argv[0]}: {_shown(error or output) or f'it has ended with code {code}'}")
        return output

    def _run(
        self, argv: Sequence[str], *, seconds: float, keep: Sequence[int] = (), text: str = ""
    ) -> tuple[int, str, str]:
        """Returns the exit code, the output and the errors. Raises NoAnswer, and Refused without a command."""
        try:
            command = subprocess.Popen(
                argv,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=keep,
                process_group=0,  # not a session: a child of its own session counts as an orphan of an attempt
                cwd="/",
            )
        except OSError as error:
            raise _not_started(argv[0], error) from None
        try:
            output, errors = command.communicate(text.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"{argv[0]} did not answer within {seconds:.0f} s") from None
        finally:
            if command.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(command.pid, signal.SIGKILL)
                _reap(command)
        if len(output) > _MOST_OUTPUT:
            raise NoAnswer(f"{argv[0]} printed more than {_MOST_OUTPUT >> 20} MiB")
        return command.wait(), output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


def _not_started(name: str, error: OSError) -> Exception:
    message = f"{name} cannot be started: {error.strerror}"
    return Refused(message, passes=True) if name == "sbatch" else NoAnswer(message)


@contextlib.contextmanager
def _in_memory(variables: Mapping[str, str]) -> Generator[int]:
    descriptor = os.memfd_create("torchyard-variables", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, b"".join(f"{name}={value}\0".encode() for name, value in variables.items()))
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _reap(command: "subprocess.Popen[bytes]") -> None:
    """Waits a moment for the end of a command that was killed: it may wait for a disk, or its output has heirs."""
    try:
        command.communicate(timeout=_KILL_S)
    except subprocess.TimeoutExpired:
        command.poll()
        for pipe in (command.stdin, command.stdout, command.stderr):
            if pipe is not None:
                pipe.close()


def _shown(text: str) -> str:
    """Returns what a command has said in one line, without control characters."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * _SHOWN])
    return " ".join(printable.split())[:_SHOWN]
