"""Recognizes in the output of a program why it ended: an error, a wrong argument, a broken device, a lost peer."""

from dataclasses import dataclass
import re

from torchyard.contract.wire.text import subtype_reason

_BEGINS = "Traceback (most recent call last):"
_IGNORED = "Exception ignored in"
"""Begins the line before the traceback of an error that ended nothing."""
_OF_RANK = re.compile(r"^\[rank[0-9]+\]: ?", re.MULTILINE)
"""How torch marks the lines of a rank's traceback."""
_OF_LAUNCHER = "ChildFailedError"
"""What torchrun raises when a rank has failed: the rank's own error says why."""
_OF_CALL = ("subprocess.CalledProcessError: Command ", "CalledProcessError: Command ", "Command ")
_ENDS_OF_CALL = (" returned non-zero exit status ", " died with ")
"""How Python says that a program which it ran has failed, with all arguments: that program's own error says why."""
_SHOWN_ARGV = 100
"""Characters of such a command that are shown."""
_OF_HYDRA = "Set the environment variable HYDRA_FULL_ERROR=1"
"""Begins what Hydra adds to an error, before it exits with code 1."""
_FEW = 3
"""Lines that may stand behind the traceback of the error that ended a program."""
_FRAME = re.compile(r'^ +File "([^"\n]{1,4096})", line ')
_SAID = re.compile(r"^(?P<path>\S*/)?(?P<who>[A-Za-z_][\w.+-]*): +\S")
"""An error as programs say it: `ValueError: …`, `bash: line 1: …`."""
_NO_ERROR = re.compile(r"DEBUG|INFO|NOTE|WARN|WARNING|FutureWarning|UserWarning|DeprecationWarning", re.IGNORECASE)


@dataclass(frozen=True)
class Said:
    """What a program says last: one line, and the traceback above it, if there is one."""

    line: str
    traceback: str | None = None


def said(text: str, *, without: str | None = None) -> Said | None:
    """Returns the last error that a program's stderr shows; None if it shows none.

    The traceback has no lines of files whose names begin with `without`.
    """
    found = _find(unmarked(text).splitlines(), without or "\n")
    return None if found is None else found[0]


def short_call(line: str) -> str:
    """Returns a line without most of the arguments, if it says that a command has failed."""
    end = _end_of_call(line)
    begin = line.find("Command ") + _SHOWN_ARGV
    return line if end is None or end <= begin else f"{line[:begin]}…{line[end:]}"


def ended_by(text: str, *, without: str | None = None) -> Said | None:
    """Returns the error after which a program left with an exit code of its own; None if its stderr shows none.

    That is the error that Hydra names, or one whose traceback stands at the end.
    """
    lines = unmarked(text).rstrip().splitlines()
    if lines and lines[-1].startswith(_OF_HYDRA):
        lines = [line.rstrip() for line in lines[:-1]]
        while lines and not lines[-1]:
            lines.pop()
        begin = len(lines) - next((at for at, line in enumerate(reversed(lines)) if not line), len(lines))
        if not any(line == _BEGINS for line in lines[begin:]):  # a wrong override has no traceback
            return Said(" ".join(lines[begin : begin + 2])) if lines else None
    found = _find(lines, without or "\n")
    if found is None or found[0].traceback is None:
        return None
    return found[0] if sum(bool(line.strip()) for line in lines[found[1] :]) <= _FEW else None


def unmarked(text: str) -> str:
    """Returns a text without the marks that torch puts before the lines of a rank's traceback."""
    return _OF_RANK.sub("", text)


def _find(lines: list[str], without: str) -> tuple[Said, int] | None:
    """Returns the last error, and how many of the lines come before what is behind it."""
    for begin in reversed([at for at, line in enumerate(lines) if line == _BEGINS]):
        if begin and lines[begin - 1].startswith(_IGNORED):
            continue
        end = next((at for at in range(begin + 1, len(lines)) if lines[at][:1].strip()), None)
        if end is None or lines[end].split(":")[0].endswith(_OF_LAUNCHER):
            continue
        own = _find(lines[:begin], without) if _end_of_call(lines[end]) is not None else None
        if own is not None:
            return own[0], end + 1
        trace = "\n".join(_others(lines[begin : end + 1], without))
        if (reason := subtype_reason(lines[end:])) is not None:
            behind = next((at for at in range(end + 1, len(lines)) if lines[at][:1].strip()), len(lines))
            return Said(reason, trace), behind
        return Said(short_call(lines[end]), trace), end + 1
    last = next((line for line in reversed(lines) if line.strip()), "")
    found = _SAID.match(last)
    if found is None or _NO_ERROR.fullmatch(found["who"]):
        return None
    return Said(last[len(found["path"] or "") :]), len(lines)


def _end_of_call(line: str) -> int | None:
    """Returns where the command ends in a line that says that it has failed; None if it says something else."""
    if not line.startswith(_OF_CALL) or "\n" in line:
        return None
    end = max(line.rfind(words) for words in _ENDS_OF_CALL)
    return end if end >= 0 else None


def _others(lines: list[str], without: str) -> list[str]:
    """Returns the lines of a traceback but for the frames of some files."""
    kept: list[str] = []
    left_out = False
    for line in lines:
        frame = _FRAME.match(line)
        left_out = frame[1].startswith(without) if frame else left_out and line.startswith(" ")
        if not left_out:
            kept.append(line)
    return kept


USAGE_EXIT_CODE = 2
_WRONG_ARGUMENT = re.compile(r"(?:^|: )error: \S", re.IGNORECASE)


def wrong_argument(text: str, *, exit_code: int | None) -> str | None:
    """Returns the last line of `text` that says which argument is wrong. None if there is none, or another code."""
    if exit_code != USAGE_EXIT_CODE:
        return None
    return next((line.strip() for line in reversed(text.splitlines()) if _WRONG_ARGUMENT.search(line)), None)


_REPORTER = re.compile(r"\bCUDA|Cuda failure|NCCL|cudaGetDeviceCount|NVML", re.ASCII)
"""Who reports faults. Without one of these names, a message is a program's own."""
_FAULT = re.compile(
    r"uncorrectable (?:ECC|NVLink) error"
    r"|hardware stack error"
    r"|Invalid access of peer GPU memory over nvlink or a hardware error"
    r"|(?:CUDA-capable device\(s\) is/are|all CUDA-capable devices are) busy or unavailable"
    r"|system not yet initialized"
    r"|system has unsupported display driver / cuda driver combination"
    r"|Driver/library version mismatch"
    r"|GPU is lost"
    r"|fallen off the bus"
    r"|GPU requires (?:a )?reset",
    re.IGNORECASE,
)
_LOST_PEER = re.compile(
    r"Dist(Network|Backend|Store)Error|Connection (closed|reset|refused)|Broken pipe|NCCL error|gloo/transport|TCPStore"
)


def device_fault(text: str) -> str | None:
    """Returns the line of `text` that reports a fault of a GPU, its links or its driver. None if there is none.

    Errors that a program can cause (an illegal address, a failed assertion, a failed launch) are not faults. The line
    proves nothing, as any program can print it: the worker asks the driver before it believes it.
    """
    found = _FAULT.search(text) if _REPORTER.search(text) is not None else None
    if found is None:
        return None
    start = text.rfind("\n", 0, found.start()) + 1
    return text[start:].partition("\n")[0].strip()


def is_lost_peer(text: str) -> bool:
    """Returns whether it is the error of a rank that lost its peer. Such an error is seldom the cause."""
    return _LOST_PEER.search(text) is not None
