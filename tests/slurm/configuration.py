"""The files of a lab's Slurm: slurm.conf, gres.conf and cgroup.conf."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Profile = Literal["linuxproc", "cgroup"]

_SLURM = """\
ClusterName={cluster}
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmdPort=6818
CommunicationParameters=NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge_socket}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/spool/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
SlurmctldDebug=debug
SlurmdDebug=debug
ReturnToService=2
SlurmdTimeout={silence_s}
SlurmctldTimeout=30
MessageTimeout=10
KillWait={kill_wait_s}
MinJobAge={min_job_age_s}
InactiveLimit=0
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
ProctrackType=proctrack/{profile}
TaskPlugin={tasks}
JobAcctGatherType=jobacct_gather/{accounting}
JobAcctGatherFrequency=5
"""
_CGROUP = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
ConstrainDevices=yes
"""


@dataclass(frozen=True)
class Partition:
    """A partition of all nodes, or of those named in `nodes`, such as `n1,n2`."""

    name: str
    nodes: str = "ALL"
    priority: int = 5
    """Jobs of a higher one preempt those of a partition whose `preempt` is not `OFF`."""
    preempt: Literal["OFF", "CANCEL", "REQUEUE"] = "OFF"
    grace_s: int = 0
    max_time: str = "UNLIMITED"


PARTITIONS = (
    Partition("main"),
    Partition("low", priority=1, preempt="CANCEL"),
    Partition("requeued", priority=1, preempt="REQUEUE"),
    Partition("high", priority=10),
    Partition("short", max_time="00:02:00"),
)


@dataclass(frozen=True)
class Settings:
    """How the lab's Slurm behaves; times in seconds."""

    profile: Profile = "linuxproc"
    partitions: Sequence[Partition] = PARTITIONS
    cpus: int = 4
    memory_mb: int = 8000
    gpus: int = 2
    silence_s: int = 15
    """After how long without an answer a node is DOWN."""
    kill_wait_s: int = 3
    """What a job has between SIGTERM and SIGKILL after scancel or its time limit."""
    min_job_age_s: int = 300
    """How long Slurm remembers a job that has ended."""


@dataclass(frozen=True)
class Place:
    """Where the lab's Slurm is."""

    folder: Path
    munge_socket: Path
    host: str
    address: str
    port: int
    nodes: dict[str, str]
    """Each node's address by its name."""


def write(settings: Settings, place: Place) -> Path:
    """Writes the files into the lab's folder, and returns the path of slurm.conf."""
    configuration = place.folder / "slurm.conf"
    lines = [_slurm(settings, place), *_nodes(settings, place), *map(_partition, settings.partitions)]
    configuration.write_text("\n".join(lines) + "\n")
    devices = "" if settings.gpus == 1 else f"[0-{settings.gpus - 1}]"
    gres = f"Name=gpu File={place.folder}/devices/gpu{devices or 0}\n" if settings.gpus else ""
    (place.folder / "gres.conf").write_text(gres)
    if settings.profile == "cgroup":
        (place.folder / "cgroup.conf").write_text(_CGROUP)
    return configuration


def _slurm(settings: Settings, place: Place) -> str:
    cgroup = settings.profile == "cgroup"
    return _SLURM.format(
        cluster=f"lab{place.port}",
        host=place.host,
        address=place.address,
        port=place.port,
        folder=place.folder,
        munge_socket=place.munge_socket,
        silence_s=settings.silence_s,
        kill_wait_s=settings.kill_wait_s,
        min_job_age_s=settings.min_job_age_s,
        profile=settings.profile,
        tasks="task/cgroup" if cgroup else "task/none",
        accounting="cgroup" if cgroup else "linux",
    )


def _nodes(settings: Settings, place: Place) -> list[str]:
    size = f"CPUs={settings.cpus} RealMemory={settings.memory_mb} State=UNKNOWN"
    gres = f" Gres=gpu:{settings.gpus}" if settings.gpus else ""
    return [f"NodeName={name} NodeAddr={address} {size}{gres}" for name, address in place.nodes.items()]


def _partition(partition: Partition) -> str:
    return (
        f"PartitionName={partition.name} Nodes={partition.nodes} PriorityTier={partition.priority}"
        f" PreemptMode={partition.preempt} GraceTime={partition.grace_s} MaxTime={partition.max_time}"
        f" Default={'YES' if partition.name == 'main' else 'NO'} State=UP"
    )
