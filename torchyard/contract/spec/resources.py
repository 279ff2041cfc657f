"""What a job asks for of its hosts, and of the cluster behind its pool."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from torchyard.contract.bounds import (
    GPU_NAME,
    MOST_CPUS,
    MOST_DEVICES,
    MOST_GPU_NAMES,
    MOST_MEMORY_GB,
    MOST_NODES,
    POOL_NAME,
    SLURM_FEATURES,
    SLURM_WORD,
    WORKER_NAME,
)
from torchyard.contract.wire.schema import Schema

GpuName = Annotated[str, Field(pattern=GPU_NAME)]
PoolName = Annotated[str, Field(pattern=POOL_NAME)]
WorkerName = Annotated[str, Field(pattern=WORKER_NAME)]


def _is_none(value: object) -> bool:
    return value is None


def _not_empty(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("must have at least 1 item")
    return names


GpuNames = Annotated[
    tuple[GpuName, ...],
    Field(strict=False, max_length=MOST_GPU_NAMES, json_schema_extra={"minItems": 1}),  # JSON has no tuples
    AfterValidator(_not_empty),  # pydantic's own would count only the valid names
]


Devices = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
"""How many devices of a node."""


class Resources(Schema):
    """The resources that an attempt uses while it runs."""

    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = Field(
        default=1, description="number of machines; more than 1 needs a pool"
    )
    devices_per_node: Devices = Field(default=1, description="devices on each node; one process (rank) for each device")
    device: Literal["auto", "cuda", "cpu"] = Field(
        default="auto", description="`cuda`: GPUs; `cpu`: CPU slots; `auto`: GPUs if the worker has any, else CPU slots"
    )
    min_memory_gb: Annotated[float, Field(gt=0, le=100_000)] | None = Field(
        default=None, description="minimum memory of each GPU, in GiB"
    )
    gpu: GpuNames | None = Field(
        default=None,
        exclude_if=_is_none,
        description="accepted names of GPUs, such as `H100` or `A100-80GB`; any one of them is enough",
    )
    cpus: Annotated[float, Field(gt=0, le=MOST_CPUS)] | None = Field(
        default=None, exclude_if=_is_none, description="CPUs on each node, for all its processes together"
    )
    memory_gb: Annotated[float, Field(gt=0, le=MOST_MEMORY_GB)] | None = Field(
        default=None, exclude_if=_is_none, description="memory on each node in GiB, for all its processes together"
    )
    pool: PoolName | None = Field(
        default=None, exclude_if=_is_none, description="name of a Slurm pool; null: one of the service's own workers"
    )
    worker: WorkerName | None = Field(
        default=None, exclude_if=_is_none, description="name of the worker to run on; null: any worker"
    )

    @property
    def total_devices(self) -> int:
        """The devices of all nodes: what a quota counts."""
        return self.nodes * self.devices_per_node

    @property
    def memory_bytes(self) -> int | None:
        """What is requested of each host's memory."""
        return None if self.memory_gb is None else max(1, round(self.memory_gb * (1 << 30)))

    @property
    def described(self) -> str:
        """What is asked for, in words: `2 GPUs (H100) of at least 80 GiB, 8 CPUs and 32 GiB of memory`.

        Of several nodes: `2 nodes with 4 GPUs each`.
        """
        count, plural = self.devices_per_node, "" if self.devices_per_node == 1 else "s"
        noun = {"cuda": "GPU", "cpu": "CPU slot", "auto": "device"}[self.device]
        names = f" ({' or '.join(self.gpu)})" if self.gpu else ""
        least = f" of at least {self.min_memory_gb:g} GiB" if self.min_memory_gb else ""
        cpus = [f"{self.cpus:g} CPU{'' if self.cpus == 1 else 's'}"] if self.cpus else []
        memory = [f"{self.memory_gb:g} GiB of memory"] if self.memory_gb else []
        *others, last = f"{count} {noun}{plural}{names}{least}", *cpus, *memory
        of_node = f"{', '.join(others)} and {last}" if others else last
        return of_node if self.nodes == 1 else f"{self.nodes} nodes with {of_node} each"

    @model_validator(mode="before")
    @classmethod
    def _names_are_of_gpus(cls, written: Any) -> Any:
        """Resolves `auto`: who names GPUs wants no CPU slots."""
        if not isinstance(written, dict):
            return written
        given: dict[str, Any] = written
        if given.get("gpu") is None or given.get("device", "auto") != "auto":
            return given
        return {**given, "device": "cuda"}

    @model_validator(mode="after")
    def _worker_is_of_no_pool(self) -> Self:
        if self.worker is not None and self.pool is not None:
            raise ValueError("worker names one host, and pool a cluster: leave one of them out")
        return self

    @model_validator(mode="after")
    def _cpu_slots_have_no_names(self) -> Self:
        if self.gpu is not None and self.device == "cpu":
            raise ValueError("gpu names GPUs, and device is cpu: leave one of them out")
        return self


SlurmWord = Annotated[str, Field(pattern=SLURM_WORD)]
SlurmFeatures = Annotated[str, Field(pattern=SLURM_FEATURES)]


class SlurmOptions(Schema):
    """Options for the pool's Slurm cluster. The pool's operator decides which values are allowed."""

    account: SlurmWord | None = Field(
        default=None, description="Slurm account; null: the account of the job's owner, if there is one"
    )
    qos: SlurmWord | None = Field(default=None, description="Slurm quality of service; null: the account's")
    constraint: SlurmFeatures | None = Field(default=None, description="required features of the nodes")
    reservation: SlurmWord | None = Field(default=None, description="Slurm reservation to run in")
