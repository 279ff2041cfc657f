"""The levels of isolation: what the operator asks for, and what this host can do."""

from collections.abc import Iterator
from enum import StrEnum

from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.errors import ConfigError
from worker.sandbox import landlock, namespaces, seccomp
from worker.sandbox.namespaces import Namespaces
from worker.sandbox.strict.requirements import HelperNeeds, strict_level

OFF = IsolationReport(
    level="off", lacks=["any isolation (TORCHYARD_ISOLATION is off): jobs may touch all that this user may"]
)
_NEEDED_ABI = (
    (1, "Landlock (Linux 5.13, CONFIG_SECURITY_LANDLOCK and lsm=landlock): jobs may touch all files of this user"),
    (3, "Landlock for truncation (Linux 6.2): jobs may empty files of this user that they cannot write"),
    (5, "Landlock for device controls (Linux 6.10)"),
    (6, "Landlock for signals and abstract sockets (Linux 6.12): jobs may reach other processes of this user by them"),
)
_NO_OWN_MOUNTS = (
    "mounts of its own for each attempt (user namespaces, Linux 5.12): jobs share /dev/shm, and may change the modes of"
    " this user's files"
)
_NO_OWN_PIDS = (
    "processes of its own for each attempt (user namespaces, with a mount of /proc): a job that forks without end may"
    " outlive its attempt"
)
_NOT_FILTERED = (
    "filters of system calls (CONFIG_SECCOMP_FILTER, x86-64 or arm64): jobs may use this user's keyrings, and change"
    " limits and priorities of its processes, and jobs with GPUs cannot use CUDA"
)


class Isolation(StrEnum):
    """What the operator asks for."""

    OFF = "off"
    AUTO = "auto"
    """All that this host can do."""
    REQUIRE = "require"
    """At least Landlock, or no job starts."""
    STRICT = "strict"
    """A user and namespaces of its own for each attempt, by a helper, or no job starts."""


def level_of(isolation: Isolation, *, needs: HelperNeeds | None = None) -> IsolationReport:
    """Returns how jobs are isolated on this host. Forks a child to try it, so no other thread may run.

    `needs`: what the helper must allow, for strict isolation. Raises ConfigError if the host cannot do what is
    required.
    """
    if isolation is Isolation.OFF:
        return OFF
    if isolation is Isolation.STRICT:
        return strict_level(needs)
    abi, own, filtered = landlock.abi(), namespaces.allowed(), seccomp.is_allowed()
    if not abi and isolation is Isolation.REQUIRE:
        raise ConfigError(f"TORCHYARD_ISOLATION is require, but this host lacks {_NEEDED_ABI[0][1]}")
    return IsolationReport(
        level="landlock" if abi else "basic",
        own_mounts=own.mounts,
        own_pids=own.pids,
        filtered=filtered,
        lacks=list(_lacks(abi, own, filtered=filtered)),
    )


def protects(isolation: IsolationReport) -> bool:
    """Returns whether jobs can write nothing but what is theirs."""
    return isolation.level in {"landlock", "strict"} or isolation.own_mounts


def describe(isolation: IsolationReport) -> str:
    """Returns the level in one line."""
    shown = {
        "off": "no sandbox",
        "basic": "sandbox without Landlock",
        "landlock": "sandbox: Landlock",
        "strict": "sandbox: strict",
    }
    own = " + namespaces" if isolation.own_pids else " + mounts" if isolation.own_mounts else ""
    return shown[isolation.level] + own + "".join(f"; lacks {what}" for what in isolation.lacks)


def _lacks(abi: int, own: Namespaces, *, filtered: bool) -> Iterator[str]:
    if not abi:
        yield _NEEDED_ABI[0][1]
    else:
        yield from (what for needed, what in _NEEDED_ABI if abi < needed)
    if not own.mounts:
        yield _NO_OWN_MOUNTS
    if not own.pids:
        yield _NO_OWN_PIDS
    if not filtered:
        yield _NOT_FILTERED
