"""The JSON of specs that are checked or submitted: what one resolves to, what its job would wait for, and batches."""

from datetime import datetime
from typing import Self

from pydantic import Field

from torchyard.contract.errors import FieldError, TorchyardError
from torchyard.contract.queue.views import EstimateView, StartsIfView
from torchyard.contract.spec.spec import JobSpec
from torchyard.contract.wire.view import View, shown


class ProspectView(View):
    """What a job would wait for if you submitted it now. Other jobs may come first."""

    fits: bool
    """Whether it would start at once."""
    code: str | None = None
    """Null if it fits. Else as in the `status_reason` of a job that waits."""
    message: str | None = None
    """What it would wait for, or why it would be refused: `quota`."""
    position: int | None = None
    """The place that it would have in the queue, from 1. Null if it is refused, or waits for other jobs."""
    estimate: EstimateView | None = Field(default=None, exclude_if=lambda value: value is None)
    """When it would start. Only with `forecast`, and not if it fits or nobody can tell."""
    later_than: datetime | None = Field(default=None, exclude_if=lambda value: value is None)
    """Instead of an estimate: a time before which it would not start, as to look further takes too long."""
    starts_if: list[StartsIfView] = Field(default=[], exclude_if=lambda value: not value)
    """Only with `forecast`: changes with which it would start at once."""


class SpecView(View):
    """A spec with every default filled in."""

    spec: JobSpec
    waits_for: ProspectView | None = Field(default=None, exclude_if=lambda value: value is None)
    """Only with `place`."""
    first_run_at: datetime | None = Field(default=None, exclude_if=lambda value: value is None)
    """Only with `place`, of a spec with a schedule: when its first run would be due."""


class BatchError(View):
    """The error of a job in a batch, with the fields of a problem."""

    code: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []

    @classmethod
    def of(cls, error: TorchyardError) -> Self:
        return cls(
            code=error.code, title=error.title, status=error.status, detail=error.message, errors=shown(error.errors)
        )


class BatchItem(View):
    """The result of one job in a batch: an `id` or an `error`."""

    index: int
    """Its place among those that were sent, from 0."""
    id: str | None = Field(default=None, exclude_if=lambda value: value is None)
    error: BatchError | None = Field(default=None, exclude_if=lambda value: value is None)


class BatchView(View):
    """The results of a batch, in the order of its jobs."""

    data: list[BatchItem]
