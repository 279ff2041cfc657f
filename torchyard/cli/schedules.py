"""The commands `schedules`: list, show, pause, resume and remove what the service submits again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output, prompt
from torchyard.cli.arguments import Json, connect
from torchyard.host import terminal

if TYPE_CHECKING:
    from datetime import datetime

    from torchyard.client import Client
    from torchyard.contract.schedules import ScheduleSummary, ScheduleView
    from torchyard.contract.spec.spec import JobSpec

schedules = typer.Typer(
    no_args_is_help=True,
    help="Submit jobs on a schedule, like cron.\n\nCreate one with `run --schedule`, or with "
    "`submit` and the key `schedule` in the spec.",
)
ScheduleArgument = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="The name of its jobs, its id or its short id.")
]
SchedulesArgument = Annotated[
    list[str], typer.Argument(metavar="SCHEDULE…", help="Names of their jobs, ids or short ids.")
]


@schedules.command("ls")
def ls(
    *,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Only schedules of this user.")] = None,
    as_json: Json = False,
) -> None:
    """List schedules, newest first."""
    with connect() as client:
        found = [*client.schedules.list(owner=owner)]
    headers = ("ID", "NAME", output.OWNER, "STATE", "NEXT", "CRON", "ZONE", "LAST RUN")
    output.show(
        found,
        output.table(headers, map(_row, found)),
        nothing=f"No schedules. Add one: {output.command()} run --schedule '0 2 * * *' PROGRAM",
        as_json=as_json,
    )


@schedules.command("show")
def show(schedule: ScheduleArgument, *, as_json: Json = False) -> None:
    """Show a schedule, its next time and its last run."""
    with connect() as client:
        found = client.schedules.get(schedule)
    output.show(found, _lines(found), as_json=as_json)


@schedules.command("pause")
def pause(schedules: SchedulesArgument, *, as_json: Json = False) -> None:
    """Pause schedules, until `resume`."""
    with connect() as client:
        changed = [client.schedules.pause(one.id) for one in _found(client, schedules)]
    _tell(changed, as_json=as_json)


@schedules.command("resume")
def resume(schedules: SchedulesArgument, *, as_json: Json = False) -> None:
    """Resume paused schedules."""
    with connect() as client:
        changed = [client.schedules.resume(one.id) for one in _found(client, schedules)]
    _tell(changed, as_json=as_json)


@schedules.command("rm")
def rm(
    schedules: SchedulesArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Delete schedules. Their jobs stay."""
    with connect() as client:
        found = _found(client, schedules)
        if not yes:
            _confirm(found)
        output.do_each([one.id for one in found], client.schedules.delete, "deleted", as_json=as_json)


def check_schedule(cron: str, *, of_many: bool, follow: bool) -> None:
    """Checks the option `--schedule` of `run` before anything is uploaded. Raises BadParameter."""
    from pydantic import ValidationError

    from torchyard.contract.spec.schedule import Schedule

    try:
        Schedule(cron=cron)
    except ValidationError:
        raise typer.BadParameter(
            "--schedule must be five fields: minute, hour, day of the month, month and day of the "
            f"week, such as '0 2 * * *'; got {cron[:100]!r}"
        ) from None
    if of_many or follow:
        raise typer.BadParameter("--schedule cannot be used with --sweep, --array or --follow")


def add(client: Client, spec: JobSpec, cron: str, *, as_json: bool, idempotency_key: str | None) -> None:
    """Adds the schedule of a program that was uploaded, and says when it is due, and with which code."""
    whole = {**spec.model_dump(mode="json"), "schedule": cron}
    added(client.schedules.create(whole, idempotency_key=idempotency_key), as_json=as_json)
    terminal.note("Each run uses the code uploaded now. To change it: `schedules rm`, then repeat this command.")


def added(made: ScheduleView, *, as_json: bool) -> None:
    """Prints the id of a schedule that was added, and says when it is due."""
    output.show(made, [made.id], as_json=as_json)
    terminal.note(
        f"Added the schedule {made.name}. First run: {_when(made.next_at)}. Show it: "
        f"{output.command()} schedules show {made.id}"
    )


def _found(client: Client, refs: list[str]) -> list[ScheduleView]:
    return [*{one.id: one for one in (client.schedules.get(ref) for ref in refs)}.values()]


def _confirm(found: list[ScheduleView]) -> None:
    lines = (f"  {one.id}  {one.name}  {one.schedule.cron}" for one in found)
    prompt.confirm("Delete these schedules? Their jobs stay.", lines)


def _tell(changed: list[ScheduleView], *, as_json: bool) -> None:
    output.show(changed, (f"{one.id}  {one.state}  next: {_when(one.next_at)}" for one in changed), as_json=as_json)


def _row(one: ScheduleSummary) -> tuple[str, ...]:
    return (
        one.id,
        one.name,
        one.owner,
        one.state,
        _when(one.next_at),
        one.schedule.cron,
        one.schedule.timezone,
        "" if one.last_run is None else terminal.ago(one.last_run.due_at),
    )


def _lines(found: ScheduleView) -> list[str]:
    times, reason, error, last = found.schedule, found.status_reason, found.last_error, found.last_run
    rows = (
        ("schedule", f"{found.id}  {found.name}"),
        ("owner", found.owner),
        ("state", found.state if reason is None else f"{found.state}: {reason.message}"),
        ("times", f"{times.cron}  {times.timezone}"),
        ("until", "" if times.until is None else _when(times.until)),
        ("overlap", times.overlap),
        ("next", _when(found.next_at)),
        ("last run", "" if last is None else f"{last.job_id}, due {_when(last.due_at)}"),
        ("skipped", str(found.skipped) if found.skipped else ""),
        ("last error", "" if error is None else f"{error.message} ({error.code}, {terminal.ago(error.at)})"),
    )
    return [f"{label:<11}{terminal.plain(text)}" for label, text in rows if text]


def _when(time: datetime | None) -> str:
    return "never" if time is None else output.moment(time)
