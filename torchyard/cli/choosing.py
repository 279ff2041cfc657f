"""Chooses the jobs of a command that acts on many: by their names, or by a filter, which the server looks through."""

from __future__ import annotations

from dataclasses import dataclass
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from torchyard.cli import prompt, stopping
from torchyard.cli.arguments import connect, label_of
from torchyard.cli.completion import job_names
from torchyard.contract.states import JobState
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torchyard.client import Client
    from torchyard.client.matching import Matching
    from torchyard.contract.jobs.requests import JobAction
    from torchyard.contract.jobs.views import ActionsView, RefusedAction

SomeJobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB…]", help="Names, ids or short ids.", autocompletion=job_names),
]
InStates = Annotated[
    list[JobState] | None, typer.Option("--state", metavar="STATE", help="Choose jobs in this state. Repeatable.")
]
WithLabels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Choose jobs with this label. Repeatable.")
]
Found = Annotated[
    str | None,
    typer.Option("--search", metavar="TEXT", help="Choose jobs with TEXT in name, id, labels or notes."),
]
Everybody = Annotated[bool, typer.Option("--all", "-a", help="With a filter: also other users' jobs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print how many jobs would change. Change nothing.")]
DryStop = Annotated[
    bool, typer.Option("--dry-run", help="Print which jobs would stop, and the work lost. Stop nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_CONFIRMED = frozenset({"cancel", "delete"})
_JOB_ID = re.compile("job_[0-9a-f]{32}")
_SHOWN = 10


@dataclass(frozen=True)
class Filter:
    """Which jobs a command acts on where none is named."""

    states: Sequence[JobState] | None
    labels: Sequence[str] | None
    search: str | None
    everybody: bool
    dry_run: bool

    @property
    def is_given(self) -> bool:
        return bool(self.states or self.labels or self.search)

    def matching(self, client: Client) -> Matching:
        return {
            "state": self.states,
            "labels": dict(label_of(text) for text in self.labels or ()),
            "q": self.search,
            "owner": None if self.everybody else client.me().name,
        }


def by_filter(jobs: Sequence[str] | None, where: Filter) -> bool:
    """Returns whether a filter chooses the jobs. Raises BadParameter unless either that or jobs are given."""
    if jobs and (where.is_given or where.everybody):
        raise typer.BadParameter("give either job names or a filter (--state, --label, --search), not both")
    if not jobs and not where.is_given:
        raise typer.BadParameter("give job names, or a filter: --state, --label or --search")
    return not jobs


def act_on_all(
    action: JobAction,
    where: Filter,
    *,
    yes: bool,
    as_json: bool,
    now: bool = False,
    set_labels: Mapping[str, str | None] | None = None,
) -> None:
    """Does the action on all jobs that the filter matches, and says on how many. Exits with 1 if some are refused."""
    with connect() as client:
        asked: dict[str, Any] = {"now": now, "set_labels": set_labels, **where.matching(client)}
        found = client.jobs.act(action, dry_run=True, **asked)
        if where.dry_run or not found.matched:
            return _say(action, 0, [], as_json=as_json, found=found)
        if not yes:
            _confirm(action, found)
        done = 0
        refused: list[RefusedAction] = []
        while True:
            part = client.jobs.act(action, **asked)
            done, refused = done + part.done, refused + part.refused
            if not (part.more and part.done):
                break
    _say(action, done, refused, as_json=as_json, found=None)
    if refused:
        raise typer.Exit(1)
    return None


def act_on(
    action: JobAction, jobs: Sequence[str], *, as_json: bool, set_labels: Mapping[str, str | None] | None = None
) -> None:
    """Does the action on the jobs that are named. Exits with 1 if some are refused."""
    with connect() as client:
        ids = [*dict.fromkeys(client.get(ref).id for ref in jobs)]
        part = client.jobs.act(action, ids, set_labels=set_labels)
    _say(action, part.done, part.refused, as_json=as_json, found=None)
    if part.refused:
        raise typer.Exit(1)


def preview(
    action: JobAction,
    jobs: Sequence[str],
    *,
    now: bool = False,
    as_json: bool,
    set_labels: Mapping[str, str | None] | None = None,
) -> None:
    """Says on how many of the named jobs the action would act, what their stop would cost, and what is refused."""
    found = _find_named(action, jobs, now=now, set_labels=set_labels)
    _say(action, 0, found.refused, as_json=as_json, found=found)


def stops_named(
    action: Literal["cancel", "pause"],
    jobs: Sequence[str],
    *,
    now: bool = False,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> bool:
    """Says what stopping the named jobs costs, with `dry_run`, or asks, if any of them runs and a terminal can answer.

    Returns whether to stop them. Raises Abort if the answer is no.
    """
    if dry_run:
        preview(action, jobs, now=now, as_json=as_json)
    elif not yes and prompt.can_ask():
        found = _find_named(action, jobs, now=now)
        if lines := stopping.price_lines(found.price):
            prompt.confirm(f"{action} {_count(found)}?", lines)
    return not dry_run


def _find_named(
    action: JobAction, jobs: Sequence[str], *, now: bool, set_labels: Mapping[str, str | None] | None = None
) -> ActionsView:
    from torchyard.contract.jobs.requests import MOST_ACTIONS

    with connect() as client:
        ids = [*dict.fromkeys(ref if now and _JOB_ID.fullmatch(ref) else client.get(ref).id for ref in jobs)]
        return client.jobs.act(action, ids[:MOST_ACTIONS], now=now, set_labels=set_labels, dry_run=True)


def _confirm(action: JobAction, found: ActionsView) -> None:
    lines = stopping.price_lines(found.price)
    if action in _CONFIRMED or lines:
        prompt.confirm(f"{action} {_count(found)}?", lines)


def _say(
    action: JobAction, done: int, refused: Sequence[RefusedAction], *, as_json: bool, found: ActionsView | None
) -> None:
    """`found`: what the filter finds, where nothing was done."""
    if as_json:
        told: dict[str, Any] = {"action": action, "matched": found.matched if found else done + len(refused)}
        told |= {"done": done}
        if found is not None and found.price is not None:
            told["price"] = found.price.model_dump(mode="json")
        return terminal.write(json.dumps({**told, "refused": [each.model_dump(mode="json") for each in refused]}))
    for each in refused[:_SHOWN]:
        terminal.note(f"{each.job_id}  {each.message}")
    if len(refused) > _SHOWN:
        terminal.note(f"and {len(refused) - _SHOWN} more")
    terminal.write(f"{action}: {_count(found) if found else _jobs(done)}")
    for line in stopping.price_lines(found.price) if found else ():
        terminal.write(line)
    return None


def _count(found: ActionsView) -> str:
    return f"at least {found.matched} jobs" if found.more else _jobs(found.matched)


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"
