"""The views of what attempts report."""

from api.present.times import time, time_or_none
from store.output.facts import EventFacts, Stacks, TimelineItem
from torchyard.contract.views.base import View
from torchyard.contract.views.telemetry import EventView, LogLine, MetricView, RankStacksView, StacksView


def event(facts: EventFacts) -> EventView:
    """Returns the view of an event."""
    return EventView.model_validate(
        {"seq": facts.seq, "time": time(facts.time), "type": facts.type, "attempt": facts.attempt, "data": facts.data}
    )


def item(stored: TimelineItem) -> View:
    """Returns the view of an item of a stream."""
    content = stored.content
    if isinstance(content, EventFacts):
        return event(content)
    if isinstance(content, LogLine):
        return content
    assert stored.attempt is not None  # points come from attempts only
    return MetricView(
        key=content.key,
        step=content.step,
        value=content.value,
        time=time(content.time),
        attempt=stored.attempt,
    )


def stacks(found: Stacks) -> StacksView:
    """Returns the view of an attempt's stacks. An answer to an earlier request is not shown while another waits."""
    answer = found.answer
    if found.requested_at is not None or answer is None:
        return StacksView(attempt=found.attempt, requested_at=time_or_none(found.requested_at))
    return StacksView(
        attempt=found.attempt,
        requested_at=time(answer["requested_at"]),
        taken_at=time(answer["taken_at"]),
        ranks=[RankStacksView.model_validate(rank) for rank in answer["ranks"]],
    )
