"""What a partition offers: parses what sinfo and scontrol say of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
import re
from typing import Literal

from torchyard.contract.cluster.devices import PoolNodes, PoolReport, PoolRules
from worker.engines.slurm.commands import Commands, NoAnswer

_AWAY = ("down", "drain", "drng", "fail", "maint", "unk", "power", "boot", "inval", "no_respond", "future", "resv")
_GPU = re.compile(r"gpu(?::([A-Za-z0-9_.-]{1,100}))?:([0-9]{1,4})(?=[(,]|$)")
_FIELDS = re.compile(r"([^|]{1,255})\|([a-z_+*~#$@^!%-]{1,60})\|([0-9]{1,9})\|([0-9]{1,15})\|([^|]{0,2000})")
_PAIR = re.compile(r"\b(State|MaxTime)=(\S{1,100})")
_TIME = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,4}):([0-9]{2}):([0-9]{2})")


@dataclass(frozen=True)
class _Node:
    cpus: int
    memory_mb: int
    gpus: dict[str, int]
    """The count by name, "" for those without."""


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """What the operator has set for a pool."""

    partition: str
    ahead: int = 10
    rules: PoolRules = field(default_factory=PoolRules)
    cpu_slots: int | None = None
    """The CPU slots of each node, which are then the pool's devices. None: its GPUs, or one slot a CPU without any."""


def read_pool(commands: Commands, settings: PoolSettings) -> PoolReport:
    """Asks Slurm about the partition. Raises NoAnswer."""
    said = dict(_PAIR.findall(commands.partition(settings.partition)))
    if "State" not in said:
        raise NoAnswer(f"scontrol has not described the partition {settings.partition}")
    nodes = list(_nodes(commands.nodes(settings.partition)))
    slots = settings.cpu_slots
    has_gpus = slots is None and any(node.gpus for node in nodes)
    return PoolReport(
        partition=settings.partition,
        kind="cuda" if has_gpus else "cpu",
        nodes=_offered(nodes, slots=None if has_gpus else slots, kind="cuda" if has_gpus else "cpu"),
        max_time_s=_seconds(said.get("MaxTime", "")),
        ahead=settings.ahead,
        rules=settings.rules,
        state=said["State"].lower()[:50],
        obstacle=_obstacle(said["State"], nodes),
    )


def unknown_pool(settings: PoolSettings, *, obstacle: str) -> PoolReport:
    """Returns the report of a partition that nobody has described yet."""
    kind = "cuda" if settings.cpu_slots is None else "cpu"
    return PoolReport(
        partition=settings.partition,
        kind=kind,
        nodes=PoolNodes(count=0, devices=0),
        ahead=settings.ahead,
        rules=settings.rules,
        state="unknown",
        obstacle=obstacle,
    )


def _nodes(text: str) -> Iterable[_Node]:
    """Yields the nodes that are not down or drained."""
    seen: set[str] = set()
    for line in text.splitlines():
        match = _FIELDS.fullmatch(_lower_state(line.strip()[:4096]))
        if match is None or match[1] in seen or any(word in match[2] for word in _AWAY) or "*" in match[2]:
            continue
        seen.add(match[1])
        gpus: dict[str, int] = {}
        for name, count in _GPU.findall(match[5]):
            gpus[name] = gpus.get(name, 0) + int(count)
        yield _Node(int(match[3]), int(match[4]), gpus)


def _lower_state(line: str) -> str:
    name, state, rest = line.split("|", 2) if line.count("|") > 1 else (line, "", "")
    return f"{name}|{state.lower()}|{rest}"


def _offered(nodes: list[_Node], *, slots: int | None, kind: Literal["cuda", "cpu"]) -> PoolNodes:
    if kind == "cuda":
        nodes = [node for node in nodes if node.gpus]
        devices = max((sum(node.gpus.values()) for node in nodes), default=0)
    else:
        devices = slots if slots is not None else max((node.cpus for node in nodes), default=0)
    return PoolNodes(
        count=len(nodes),
        devices=devices,
        gpus=sorted({name for node in nodes for name in node.gpus if name}) if kind == "cuda" else [],
        cpus=min((node.cpus for node in nodes), default=None),
        memory_gb=min((node.memory_mb / 1024 for node in nodes), default=None),
    )


def _obstacle(state: str, nodes: list[_Node]) -> str | None:
    if state.upper() != "UP":
        return f"the partition is {state.lower()[:50]}"
    return None if nodes else "all its nodes are down or drained"


def _seconds(text: str) -> int | None:
    """Returns a time limit of Slurm in seconds, or None for UNLIMITED and for what is none."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
