"""The views of what runs show."""

from collections.abc import Sequence

from api.present.times import time
from store.output.facts import MediaFacts, MediaKeyFacts, ShownMedia
from torchyard.contract.views.media import MediaKeyView, MediaPage, MediaView

MOST_STEPS = 1000
"""Steps that the view of a key names."""


def page(found: ShownMedia) -> MediaPage:
    """Returns the view of some items, and of what the job has in all."""
    shown, last = [item(facts) for facts in found.page.items], found.page.items[-1] if found.page.items else None
    following = None if last is None or not found.page.has_more else f"{last.step}:{last.number}:{last.key}"
    return MediaPage(
        data=shown, has_more=found.page.has_more, next=following, keys=[key(facts) for facts in found.keys]
    )


def item(facts: MediaFacts) -> MediaView:
    """Returns the view of an item."""
    return MediaView.model_validate(
        {
            "id": facts.id,
            "key": facts.key,
            "kind": facts.kind,
            "step": facts.step,
            "number": facts.number,
            "attempt": facts.attempt,
            "caption": facts.caption,
            "classes": facts.classes,
            "parts": {
                picture.part: {
                    "media_type": picture.media_type,
                    "size": picture.size,
                    "sha256": picture.sha256,
                    "width": picture.width,
                    "height": picture.height,
                }
                for picture in facts.pictures
            },
            "data": facts.data,
            "created_at": time(facts.created_at),
        }
    )


def key(facts: MediaKeyFacts) -> MediaKeyView:
    """Returns the view of a key."""
    steps = _thinned(facts.steps)
    return MediaKeyView.model_validate(
        {"key": facts.key, "kind": facts.kind, "count": facts.count, "steps": steps, "numbers": facts.numbers}
    )


def _thinned(steps: Sequence[int]) -> list[int]:
    """Returns at most `MOST_STEPS` of them, evenly, with the first and the last."""
    if len(steps) <= MOST_STEPS:
        return [*steps]
    return [steps[place * (len(steps) - 1) // (MOST_STEPS - 1)] for place in range(MOST_STEPS)]
