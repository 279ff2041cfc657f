"""The JSON of a spec that is not submitted: what it resolves to, and what its job would wait for."""

from datetime import datetime

from pydantic import Field

from torchyard.contract.spec import JobSpec
from torchyard.contract.views.base import View
from torchyard.contract.views.estimates import EstimateView, StartsIfView


class ProspectView(View):
    """What would become of a job if it were submitted now. Others may be faster."""

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
