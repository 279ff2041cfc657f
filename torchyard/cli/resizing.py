"""Says what another number of devices changes in a job that goes on."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from torchyard.contract.recipes.training import Recipe
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.contract.jobs.views import JobView


def say_change(client: Client, job: JobView, devices: int) -> None:
    """Says on stderr what becomes of the job's global batch on so many devices of each node; nothing if they stay."""
    before = job.spec.resources.devices_per_node
    if devices == before:
        return
    has_checkpoint = next(iter(client.jobs.checkpoints(job.id)), None) is not None
    terminal.note(
        f"{'devices':<11}{devices} instead of {before}: {_batch(job, devices, has_checkpoint=has_checkpoint)}"
    )


def _batch(job: JobView, devices: int, *, has_checkpoint: bool) -> str:
    resources, config = job.spec.resources, job.spec.config
    share = Fraction(devices, resources.devices_per_node)
    if not isinstance(config, Recipe):
        return f"the global batch is multiplied by {share}, unless the program divides its batch by WORLD_SIZE"
    training = config.training
    each = training.per_device_batch_size * training.gradient_accumulation_steps * resources.nodes
    whole = (job.card or {}).get("global_batch") or each * resources.devices_per_node
    if has_checkpoint:
        return f"the global batch stays {whole}, as in the checkpoint"
    return f"the global batch becomes {each * devices} instead of {whole}; training starts from the beginning"
