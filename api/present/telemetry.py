"""The views of what attempts report."""

from api.present.times import time
from store.output.facts import EventFacts, TimelineItem
from torchyard.contract.views.base import View
from torchyard.contract.views.telemetry import EventView, LogLine, MetricView


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
