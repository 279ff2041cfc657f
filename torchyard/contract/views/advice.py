"""What the service advises about a job: what is the matter with it, what shows that, and what to do."""

from typing import Literal

from pydantic import Field

from torchyard.contract.views.base import View
from torchyard.contract.views.estimates import StartsIfView

EvidenceKind = Literal["log", "rank", "memory", "event", "metric", "utilization"]
"""What shows a cause: a line of output, how a rank ended, a measure of memory, an event, a metric, or how much the
devices are used."""
Severity = Literal["info", "warning", "error"]


class EvidenceView(View):
    """One fact that shows the cause. The job may have written any text."""

    kind: EvidenceKind
    text: str
    line: int | None = Field(default=None, description="the number of that line of the job's log, if it is one")
    rank: int | None = None


class AdviceView(View):
    """What is the matter with a job and what to do. Nothing is claimed without evidence."""

    headline: str
    cause: str | None = Field(
        default=None, description="one sentence; null: nothing is wrong, nobody knows what, or the headline says it"
    )
    evidence: list[EvidenceView] = []
    steps: list[str] = Field(default=[], description="what to do, the most promising first")
    severity: Severity = "info"
    metric_pattern: str | None = Field(
        default=None,
        description="of a job without metrics whose log repeats a number: what finds it, for `metrics.patterns`",
    )
    starts_if: list[StartsIfView] = Field(
        default=[], description="of a job that waits for devices: changes with which it would start now"
    )
