"""Advises on an error that the program's code did not cause: a taken port, too many open files, an unknown package."""

from collections.abc import Iterator
from dataclasses import dataclass
import re

from api.advice import output
from api.advice.facts import Facts, shown
from torchyard.contract.states import EndReason
from torchyard.contract.wire.text import headline

_JUDGED = {
    *(EndReason.USER_ERROR, EndReason.KILLED, EndReason.HANG, EndReason.LAUNCH_FAILED),
    EndReason.TIME_LIMIT,
}
_LAST_LINES = 20
"""So many of the newest lines may show it, where the end itself has no error of its own."""
_MOST_TEXT = 2000
"""Characters of a line that are searched."""
_BY_OTHERS = re.compile(
    r"(?:^|: )(?:\w+\.)*(?:OSError|PermissionError|ConnectionError|Connection\w+Error|TimeoutError|BrokenPipeError|"
    r"BlockingIOError|InterruptedError|URLError|HTTPError|SSLError|ReadTimeout|ProxyError|gaierror|timeout): "
)
"""Errors of the system or of another host. The line of code that met one is seldom wrong."""


@dataclass(frozen=True)
class _Pattern:
    """What evidence says, and what to do then."""

    says: re.Pattern[str]
    steps: tuple[str, ...]


_WITHOUT_RANK = "`torchyard run -- python {program}` runs it once, without RANK."
_PATTERNS = (
    _Pattern(
        re.compile(r"Address already in use|EADDRINUSE|port \d+ is (?:already )?in use", re.IGNORECASE),
        ("Another process on the host uses that port. Use MASTER_PORT, which is free, or port 0 for any free one.",),
    ),
    _Pattern(
        re.compile(
            r"No space left on device.{0,80}/dev/shm|/dev/shm.{0,200}No space left on device|insufficient shared memory"
            r"|unable to (?:open|write to|allocate|resize) (?:a )?(?:file </torch|shared memory)"
            r"|DataLoader worker .{0,80}Bus error",
            re.IGNORECASE,
        ),
        (
            "Shared memory (/dev/shm) is full: use fewer loader processes or smaller batches, or ask the operator for"
            " more (Docker: --shm-size).",
        ),
    ),
    _Pattern(
        re.compile(r"Too many open files|\[Errno 24\]|received 0 items of ancdata", re.IGNORECASE),
        (
            "Too many open files: use fewer loader processes, or call"
            " torch.multiprocessing.set_sharing_strategy('file_system'), or ask the operator for a higher limit"
            " (ulimit -n).",
        ),
    ),
    _Pattern(
        re.compile(
            r"was not found in the (?:package registry|provided package locations)|No matching distribution found"
            r"|there (?:is|are) no versions? of |Could not find a version that satisfies|has no (?:usable )?wheels"
            r"|No solution found when resolving",
            re.IGNORECASE,
        ),
        ("Correct the name or the version of that package in {requirements}: the index has none that fits.",),
    ),
    _Pattern(
        re.compile(
            r"ProcessGroupNCCL is only supported with GPUs|doesn't have NCCL built in|nccl.{0,40}no GPUs? found",
            re.IGNORECASE,
        ),
        (
            "NCCL needs GPUs, and this job has none. Many programs choose NCCL when RANK is set:"
            " `init_process_group()` without a backend chooses one that works.",
            _WITHOUT_RANK,
            "Or request GPUs (`--devices`): `torchyard workers ls` lists them.",
        ),
    ),
    _Pattern(
        re.compile(
            r"No CUDA GPUs are available|Found no NVIDIA driver|Torch not compiled with CUDA|_cuda_setDevice"
            r"|CUDA deserialization.*torch\.cuda\.is_available\(\) is False",
            re.IGNORECASE,
        ),
        (
            "The program needs a GPU and finds none: request one (`torchyard workers ls` lists them), or use"
            ' `torch.accelerator.current_accelerator()` in place of "cuda".',
            f"If it wants one because it sees RANK: {_WITHOUT_RANK}",
        ),
    ),
    _Pattern(
        re.compile(
            r"Temporary failure in name resolution|Name or service not known|nodename nor servname|Failed to resolve"
            r"|Network is unreachable|We couldn't connect to 'https?://|getaddrinfo failed",
            re.IGNORECASE,
        ),
        (
            "The host cannot reach that address: upload the data (`torchyard data push`, `--mount`), or ask the"
            " operator for a proxy.",
        ),
    ),
    _Pattern(
        re.compile(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|self[- ]signed certificate", re.IGNORECASE),
        ("The host does not trust that server: ask the operator to install your network's certificates.",),
    ),
    _Pattern(
        re.compile(r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]", re.IGNORECASE),
        ("A disk is full: write less or elsewhere, or ask the operator for space.",),
    ),
    _Pattern(
        re.compile(
            r"Resource temporarily unavailable|can't start new thread|\[Errno 11\]|Cannot fork|fork: retry",
            re.IGNORECASE,
        ),
        ("The host allows no more processes: use fewer loader processes and threads (OMP_NUM_THREADS).",),
    ),
)


def steps(facts: Facts) -> list[str]:
    """Returns what to do about what surrounds the program; nothing if no line shows such a cause."""
    failure = facts.failure
    if failure is None or failure.code not in _JUDGED or facts.recipe is not None:
        return []
    for text in _texts(facts):
        for pattern in _PATTERNS:
            if pattern.says.search(text):
                return _filled(pattern.steps, facts)
    return []


def is_by_others(message: str) -> bool:
    """Whether an error is one of the system or of another host, of a kind that nothing is advised about."""
    return _BY_OTHERS.search(message[:_MOST_TEXT]) is not None


def _texts(facts: Facts) -> Iterator[str]:
    """Yields what says most of the end first."""
    failure = facts.failure
    assert failure is not None
    yield headline(failure.message)[:_MOST_TEXT]
    yield (failure.traceback or "").rstrip().rpartition("\n")[2][:_MOST_TEXT]
    line = output.decisive_line(failure, facts.lines)
    if line is not None:
        yield line.text[:_MOST_TEXT]
    if failure.code is not EndReason.USER_ERROR:
        for newest in [*facts.lines][: -_LAST_LINES - 1 : -1]:
            yield newest.text[:_MOST_TEXT]


def _filled(steps: tuple[str, ...], facts: Facts) -> list[str]:
    """Returns the steps with the names of the job, without those that it follows already."""
    script = facts.script
    if script is None:
        return [step for step in steps if "{" not in step]
    program = f"-m {script.module}" if script.module else script.entrypoint or "PROGRAM"
    names = {"program": shown(program), "requirements": shown(script.requirements or "the requirements")}
    return [step.format(**names) for step in steps if not (script.command is not None and "{program}" in step)]
