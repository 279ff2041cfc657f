"""The JSON of a job's attempts."""

from datetime import datetime
from typing import Literal

from torchyard.contract.states import EndReason
from torchyard.contract.wire.view import View


class AttemptDevice(View):
    """A device of an attempt. `index` and `name` are null if the worker no longer has the device."""

    worker: str
    index: int | None
    uuid: str
    name: str | None
    node: int = 0
    """The number of its node, from 0. `devices` of the job has the node's host."""


class StoppedForView(View):
    """The job that preempted an attempt. `job_id` and `name` are null if you may not read it."""

    owner: str
    job_id: str | None
    name: str | None


class AttemptEnvironment(View):
    """The Python environment from `config.python` when the attempt started."""

    name: str
    path: str
    kind: Literal["venv", "conda"]
    python: str
    torch: str
    """The version of torch; empty without torch. `cuda` is empty without CUDA."""
    cuda: str
    packages: int
    digest: str
    """The digest of the list of packages and versions."""


class AttemptView(View):
    """An attempt: one run of a job on its devices."""

    number: int
    worker: str
    """The name of its worker."""
    started_at: datetime
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    detail: str | None = None
    start_step: int
    """The step from which it resumed. Points of earlier attempts after this step are hidden by default."""
    devices: list[AttemptDevice]
    stopped_for: StoppedForView | None = None
    """The job that preempted it. Null if that was deleted, or if a cluster preempted it."""
    environment: AttemptEnvironment | None = None
    """Null if it ran in the worker's environment."""
    duration_seconds: float | None = None
    """Null while it runs."""
