"""Positions in the queue."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.queue.credits import credits
from store.queue.line.entries import is_in_line, standing_of
from store.queue.line.line import line_of


def ask_after_commit(session: Session, jobs: Iterable[Any]) -> None:
    """Has the positions of jobs that were just submitted found when they are announced: see `Store.positions`."""
    announcement_of(session).newcomers += [standing_of(job) for job in jobs if is_in_line(job)]


def find_positions(session: Session, rows: Iterable[Any]) -> dict[str, int]:
    """Returns the positions of those jobs that are in the line, from 1, by id. `rows` have the columns of jobs."""
    standings = [standing_of(row) for row in rows if is_in_line(row)]
    if not standings:
        return {}
    return line_of(session).positions(credits(session, {job.bucket for job in standings}), standings)
