"""Varied states of a cluster: hosts, running and waiting jobs, quotas and preemptions."""

from dataclasses import dataclass
from random import Random

from torchyard.contract.cluster.devices import DeviceReport

_GIB = 1 << 30
OWNERS = ("ada", "bob", "eve")
OVERDUE_S = 200
"""Seconds after which a stop with the default grace is overdue."""


@dataclass(frozen=True)
class WorldHost:
    name: str
    devices: list[DeviceReport]
    draining: bool = False
    lost: bool = False


@dataclass(frozen=True)
class WorldRunning:
    """A job that runs on devices of one host. `stop` was requested by its owner."""

    owner: str
    priority: int
    preemptible: bool
    host: int
    devices: list[str]
    stop: str | None = None


@dataclass(frozen=True)
class WorldWaiting:
    owner: str
    priority: int
    count: int
    device: str
    min_memory_gb: float | None = None
    held_back: bool = False


@dataclass(frozen=True)
class WorldPreemption:
    """A running job that was asked to stop for a waiting one, some seconds ago."""

    victim: int
    preemptor: int
    ago_s: int


@dataclass(frozen=True)
class World:
    """Jobs are older the nearer they are to the front. `here` is the host that makes a pass."""

    hosts: list[WorldHost]
    here: int
    running: list[WorldRunning]
    waiting: list[WorldWaiting]
    preemptions: list[WorldPreemption]
    quotas: dict[str, dict[str, int]]


def any_world(random: Random) -> World:
    """Returns a world of random choices."""
    hosts = [_host(random, index) for index in range(random.randint(1, 3))]
    here = random.randrange(len(hosts))
    hosts[here] = WorldHost(hosts[here].name, hosts[here].devices, hosts[here].draining and random.random() < 0.5)
    held = random.choice((0.2, 0.5, 0.8, 1.0))
    running = [job for index, host in enumerate(hosts) for job in _running_on(random, index, host, held)]
    waiting = [job for _ in range(random.randint(1, 4)) for job in _waiting(random)]
    random.shuffle(waiting)
    quotas = {owner: _quota(random) for owner in OWNERS if random.random() < 0.2}
    return World(hosts, here, running, waiting, _preemptions(random, running, waiting), quotas)


def _host(random: Random, number: int) -> WorldHost:
    name = f"box-{'abc'[number]}"
    slots = random.choice((0, 1, 2, 4))
    gpus = random.choice((0, 2, 4)) if slots else random.randint(1, 4)
    devices = [DeviceReport(index=index, uuid=f"cpu-{index}", name="slot", kind="cpu") for index in range(slots)]
    for index in range(gpus):
        memory = random.choice((24, 40, 80))
        blocked = random.choice((f"GPU {index} is held by pid 7, not ours", "in quarantine", None, None, None, None))
        devices.append(
            DeviceReport(
                index=index,
                uuid=f"GPU-{name}-{index}",
                name="H200",
                kind="cuda",
                memory_bytes=memory * _GIB,
                blocked=blocked,
                returning=blocked is not None and random.random() < 0.4,
            )
        )
    return WorldHost(name, devices, draining=random.random() < 0.15, lost=random.random() < 0.1)


def _running_on(random: Random, index: int, host: WorldHost, held: float) -> list[WorldRunning]:
    """`held`: the share of the devices that jobs hold."""
    found: list[WorldRunning] = []
    for kind in ("cpu", "cuda"):
        left = [device.uuid for device in host.devices if device.kind == kind]
        while left:
            count = min(len(left), random.choice((1, 1, 2, 3)))
            devices, left = left[:count], left[count:]
            if random.random() < held:
                stop = random.choice((*([None] * 8), "cancel", "pause"))
                preemptible = random.random() < 0.7
                found.append(
                    WorldRunning(random.choice(OWNERS), random.randint(-2, 2), preemptible, index, devices, stop)
                )
    return found


def _waiting(random: Random) -> list[WorldWaiting]:
    device = random.choice(("auto", "auto", "cuda", "cpu"))
    job = WorldWaiting(
        owner=random.choice(OWNERS),
        priority=random.choice((-1, 0, 0, 0, 1, 3, 5)),
        count=random.choice((1, 1, 1, 1, 2, 2, 3, 5)),
        device=device,
        min_memory_gb=None if device == "cpu" else random.choice((None, None, None, None, 30, 60.5, 100)),
        held_back=random.random() < 0.08,
    )
    return [job] * random.choice((1, 1, 2, 4))


def _quota(random: Random) -> dict[str, int]:
    limits = {"devices": random.randint(1, 6), "running": random.randint(0, 4)}
    return {name: limit for name, limit in limits.items() if random.random() < 0.7}


def _preemptions(random: Random, running: list[WorldRunning], waiting: list[WorldWaiting]) -> list[WorldPreemption]:
    found: list[WorldPreemption] = []
    free = [index for index, job in enumerate(running) if job.preemptible and job.stop is None]
    random.shuffle(free)
    for preemptor in random.sample(range(len(waiting)), min(len(waiting), random.choice((0, 0, 0, 1, 2)))):
        found += [
            WorldPreemption(free.pop(), preemptor, random.choice((5, OVERDUE_S)))
            for _ in range(min(len(free), random.randint(1, 2)))
        ]
    return found
