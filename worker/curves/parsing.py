"""`python -P -m worker.curves.parsing` parses parts of files with curves. Their bytes may be hostile.

It is given bytes and opens nothing: it has no files, no sockets and no other programs, and little memory and time.
"""

from collections.abc import Callable, Sequence
import contextlib

from torchyard.contract.attempts.events import LAST_TIME_US
from torchyard.host.confined import Answer, serve
from worker.curves import mlflow, summaries, tfrecords, wandb
from worker.curves.parsed import (
    DAMAGED,
    LARGE,
    MALFORMED,
    MOST_RECORD,
    STEP,
    Notice,
    Parsed,
    Part,
    Point,
    answer_of,
    parts_of,
)
from worker.sandbox import landlock, privileges, seccomp

MEMORY_BYTES = 1 << 29
_NICE = 5


def main() -> None:
    """Raises OSError if this process cannot be confined."""
    privileges.drop()
    with contextlib.suppress(MemoryError):  # of a question: the asker sees that there is no answer
        serve(_prepared, memory_bytes=MEMORY_BYTES, nice=_NICE)


def answered(question: bytes) -> bytes:
    """Answers what each part of a question has."""
    return answer_of([_without_repeats(_PARSERS[part.kind](part)) for part in parts_of(question)])


def parse_events(part: Part) -> Parsed:
    """Returns the scalars in a part of an event file of TensorBoard."""
    split = tfrecords.split(part.data, part.offset, file_size=part.size, limit=MOST_RECORD)
    parsed = Parsed(split.offset)
    if split.skipped:
        parsed.notices.append(Notice(LARGE))
    for record in split.records:
        _add_event(record, parsed)
    if split.damaged:
        parsed.notices.append(Notice(DAMAGED))
    return parsed


def _add_event(record: bytes, parsed: Parsed) -> None:
    try:
        event = summaries.parse(record)
    except ValueError as error:
        parsed.notices.append(Notice(MALFORMED, str(error)))
        return
    if event.values and event.step < 0:
        parsed.notices.append(Notice(STEP, str(event.step)))
        return
    written = summaries.microseconds(event.time, last=LAST_TIME_US)
    texts = ((tag.decode("utf-8", "surrogateescape"), value) for tag, value in event.values)
    parsed.points += [Point(tag, event.step, value, written) for tag, value in texts]


_PARSERS: dict[str, Callable[[Part], Parsed]] = {
    "events": parse_events,
    "wandb": wandb.parse,
    "lines": mlflow.parse_lines,
    "database": mlflow.parse_database,
}


def _prepared(_: bytes) -> Answer:
    if landlock.abi():
        landlock.restrict([])
    if seccomp.is_allowed():
        seccomp.close()
    return answered


def _without_repeats(parsed: Parsed) -> Parsed:
    parsed.notices = _first_of_each(parsed.notices)
    return parsed


def _first_of_each(notices: Sequence[Notice]) -> list[Notice]:
    return [*{one.topic: one for one in reversed(notices)}.values()][::-1]


if __name__ == "__main__":
    main()
