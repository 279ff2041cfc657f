"""The levels of isolation: what the operator asks for, and what this host can do."""

from enum import StrEnum

from torchyard.contract.errors import ConfigError
from torchyard.contract.views import IsolationView
from worker.sandbox import landlock, namespaces
from worker.sandbox.strict.requirements import HelperNeeds, strict_level

OFF = IsolationView(
    level="off", lacks=["any isolation (TORCHYARD_ISOLATION is off): jobs may touch all that this user may"]
)
_NEEDED_ABI = (
    (1, "Landlock (Linux 5.13, CONFIG_SECURITY_LANDLOCK and lsm=landlock): jobs may touch all files of this user"),
    (3, "Landlock for truncation (Linux 6.2): jobs may empty files of this user that they cannot write"),
    (5, "Landlock for device controls (Linux 6.10)"),
    (6, "Landlock for signals and abstract sockets (Linux 6.12): jobs may kill other processes of this user"),
)
_NO_OWN_MOUNTS = (
    "mounts of its own for each attempt (user namespaces, Linux 5.12): jobs share /dev/shm, and may change the modes of"
    " this user's files"
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


def level_of(isolation: Isolation, *, needs: HelperNeeds | None = None) -> IsolationView:
    """Returns how jobs are isolated on this host. Forks a child to try it, so no other thread may run.

    `needs`: what the helper must allow, for strict isolation. Raises ConfigError if the host cannot do what is
    required.
    """
    if isolation is Isolation.OFF:
        return OFF
    if isolation is Isolation.STRICT:
        return strict_level(needs)
    abi, own_mounts = landlock.abi(), namespaces.is_allowed()
    lacks = [what for needed, what in _NEEDED_ABI if abi < needed] + ([] if own_mounts else [_NO_OWN_MOUNTS])
    if abi:
        return IsolationView(level="landlock", own_mounts=own_mounts, lacks=lacks)
    if isolation is Isolation.REQUIRE:
        raise ConfigError(f"TORCHYARD_ISOLATION is require, but this host lacks {lacks[0]}")
    return IsolationView(level="basic", own_mounts=own_mounts, lacks=[lacks[0], *lacks[len(_NEEDED_ABI) :]])


def describe(isolation: IsolationView) -> str:
    """Returns the level in one line."""
    shown = {
        "off": "not isolated",
        "basic": "isolated without Landlock",
        "landlock": "isolated by Landlock",
        "strict": "isolated strictly",
    }
    own = ", with mounts of its own" if isolation.own_mounts else ""
    return shown[isolation.level] + own + "".join(f"; lacks {what}" for what in isolation.lacks)
