"""Reads what names weights on the command line: `JOB`, `JOB/REF`, `SWEEP/best` or `model:NAME@VERSION`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from torchyard.contract.models.names import ModelRef
from torchyard.contract.spec.initial import MODEL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torchyard.client import Client
    from torchyard.contract.files.views import CheckpointView
    from torchyard.contract.models.views import ModelVersionView


@dataclass(frozen=True)
class Weights:
    """A checkpoint of a job, or a version of a model."""

    listed: CheckpointView | ModelVersionView
    trainer: str
    job: str | None
    """The name of its job."""
    described: str
    fetch: Callable[..., Path]
    """Downloads it, with the arguments `file`, `to` and `on_progress` of `Client.jobs.download`."""


def weights_of(client: Client, named: str) -> Weights:
    """Returns the weights of that name: of a job without a REF the best checkpoint, else the latest.

    Raises NotFound, and Conflict where a short id is that of several.
    """
    from torchyard.client.blocking import ask
    from torchyard.client.references import find_named_checkpoint

    if named.startswith(MODEL):
        version = client.models.version(named.removeprefix(MODEL))
        exact = str(ModelRef(version.owner, version.name, version.version))
        return Weights(version, version.trainer, None, f"model {exact}", partial(client.models.download, exact))
    job, checkpoint = ask(client, find_named_checkpoint, named)
    fetch = partial(client.jobs.download, job.id, checkpoint.id)
    return Weights(checkpoint, job.spec.trainer, job.name, f"checkpoint {checkpoint.id}", fetch)
