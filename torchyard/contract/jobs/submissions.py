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
    """Whether the job would start at once."""
    code: str | None = None
    """The reason to wait, as in `status_reason`; null if the job fits."""
    message: str | None = None
    """What the job would wait for, or why it would be refused (`quota`)."""
    position: int | None = None
    """Its position in the queue, from 1. Null if it would be refused, or would wait for other jobs."""
    estimate: EstimateView | None = Field(default=None, exclude_if=lambda value: value is None)
    """When the job would start. Only with `forecast`; null if it fits or the time is unknown."""
    later_than: datetime | None = Field(default=None, exclude_if=lambda value: value is None)
    """Instead of an estimate, if the search took too long: the job starts after this time."""
    starts_if: list[StartsIfView] = Field(default=[], exclude_if=lambda value: not value)
    """Only with `forecast`: changes with which the job would start at once."""


class SpecView(View):
    """A spec with every default filled in."""

    spec: JobSpec
    waits_for: ProspectView | None = Field(default=None, exclude_if=lambda value: value is None)
    """Only with `place` or `forecast`."""
    first_run_at: datetime | None = Field(default=None, exclude_if=lambda value: value is None)
    """The first run of a spec with a `schedule`. Only with `place`."""


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
    """Its index in the request, from 0."""
    id: str | None = Field(default=None, exclude_if=lambda value: value is None)
    error: BatchError | None = Field(default=None, exclude_if=lambda value: value is None)


class BatchView(View):
    """The results of a batch, in the order of its jobs."""

    data: list[BatchItem]
