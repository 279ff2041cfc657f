"""Writes usage by day as CSV, in parts: no transaction stays open while a slow client reads."""

from collections.abc import Generator, Sequence

from api.present import usage as present
from store.cluster import device_days
from store.cluster.device_days import Asked, Key
from store.store import Store
from torchyard.contract.csvtext import csv_of
from torchyard.contract.views.usage import CSV_COLUMNS


def parts(store: Store, asked: Asked, *, after: Key | None, most: int) -> Generator[bytes]:
    """Yields a line for each day of each row, of at most `most` rows at a time. Raises Unavailable."""
    lines: list[Sequence[object]] = [CSV_COLUMNS]
    has_more = True
    while has_more:
        with store.read() as session:
            found = device_days.list_usage(session, asked, after=after, limit=most)
        for facts in found.items:
            lines += present.row(facts).csv_lines()
        yield csv_of(lines).encode()
        lines, has_more = [], found.has_more
        after = (found.items[-1].owner, found.items[-1].label) if has_more else None
