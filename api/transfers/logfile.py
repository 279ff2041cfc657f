"""Writes a job's log as plain text, in parts: no transaction stays open while a slow client reads."""

from collections.abc import Iterator

from api.present.times import time
from store.output import logs
from store.output.facts import Lines, LogFilter
from store.store import Store

PART_CHARACTERS = 1 << 20


def parts(store: Store, job_id: str, *, where: LogFilter, last: int, timestamps: bool) -> Iterator[bytes]:
    """Yields the lines up to number `last`. Raises Unavailable. A log that is removed meanwhile ends early."""
    line = 1
    while line <= last:
        text, size = list[str](), 0
        with store.read() as session, logs.read_pieces(session, job_id, line=line, where=where, to=last) as chunks:
            line = last + 1
            for chunk in chunks:
                if size >= PART_CHARACTERS:
                    line = chunk.first
                    break
                text.append(_text(chunk, timestamps=timestamps))
                size += len(chunk.text)
        yield "".join(text).encode()


def _text(chunk: Lines, *, timestamps: bool) -> str:
    if not timestamps:
        return f"{chunk.text}\n"
    stamp = time(chunk.time).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    return "".join(f"{stamp}Z {line}\n" for line in chunk.text.split("\n"))
