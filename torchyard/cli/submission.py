"""Commands that validate and submit specs, and retry jobs."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
import re
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.cli import output
from torchyard.cli.arguments import (
    Devices,
    FileArgument,
    FilesArgument,
    Follow,
    IdempotencyKey,
    JobArgument,
    Json,
    connect,
)
from torchyard.cli.specs import read_spec, read_specs
from torchyard.cli.sweeps import documents
from torchyard.cli.sweeps import options as sweep_options
from torchyard.contract.team.roles import Visibility
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from torchyard.client import Client
    from torchyard.contract.errors import FieldError
    from torchyard.contract.jobs.submissions import BatchView
    from torchyard.contract.jobs.views import JobView

_OF_BATCH = re.compile(r"jobs\.([0-9]+)(?:\.(.+))?")
"""Matches the field of an error of a batch: the index of the job, and the field of its spec."""


def validate(
    file: FileArgument,
    *,
    forecast: Annotated[
        bool,
        typer.Option("--forecast", help="Also print when the job would start, and which changes would start it now."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a job spec, and print it with its defaults."""
    import yaml

    with connect() as client:
        sent = read_spec(file)
        found = client.jobs.forecast(sent) if forecast else None
        spec = client.jobs.validate(sent) if found is None else found.spec
    if as_json:
        return output.write_json(spec if found is None else found)
    if found is not None and found.waits_for is not None:
        from torchyard.cli import forecasts

        for line in forecasts.of_spec(found.waits_for):
            terminal.note(line)
    resolved = {"trainer": spec.trainer, "name": spec.name, **spec.model_dump(mode="json")}
    text = yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=120)
    return terminal.write(text.rstrip())


def submit(
    files: FilesArgument,
    *,
    name: Annotated[str | None, typer.Option(help="The job's name. Replaces the spec's.")] = None,
    visibility: Annotated[Visibility | None, typer.Option(help="Who may read the job. Replaces the spec's.")] = None,
    init_from: Annotated[
        str | None,
        typer.Option(
            metavar="JOB/REF",
            help="Initial weights: digits/best, SWEEP/best or model:NAME@VERSION. Replaces the spec's.",
        ),
    ] = None,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="Submit all jobs or none. Default if any has an `after`.")
    ] = False,
    sweep: sweep_options.Sweep = None,
    array: sweep_options.Array = None,
    method: sweep_options.Method = None,
    trials: sweep_options.Trials = None,
    max_parallel: sweep_options.MaxParallel = None,
    monitor: sweep_options.Monitor = None,
    mode: sweep_options.Mode = None,
    halving: sweep_options.Halving = None,
    sweep_bool: sweep_options.SweepBool = None,
    sweep_style: sweep_options.SweepStyle = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run (of a sweep, each trial). Submit nothing.")
    ] = False,
    idempotency_key: IdempotencyKey = None,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Submit jobs or a sweep from files.

    Prints their ids. With --follow, prints the job's log, and exits with 1 if it fails. A file with the keys `job`
    and `parameters` is a sweep. --sweep and --array turn the only job into a sweep; `lr` is the key of its config
    that ends in lr. `after` may name jobs of the same command. A spec with the key `schedule` creates a schedule.
    """
    found = read_specs(files)
    options = {"name": name, "visibility": visibility, "init_from": init_from}
    own = {key: value for key, value in options.items() if value is not None}
    chosen = {"method": method, "trials": trials, "halving": halving, "max_parallel": max_parallel}
    more = {**chosen, "monitor": monitor, "mode": mode, "sweep_bool": sweep_bool, "sweep_style": sweep_style}
    if any(documents.is_sweep(each.spec) for each in found):
        read = documents.read(found, own, {"sweep": sweep, "array": array, **more})
        with connect() as client:
            asked = {"as_json": as_json, "idempotency_key": idempotency_key}
            return documents.submit(client, read, dry_run=dry_run, detach=not follow, **asked)
    if len(found) > 1 and follow:
        raise typer.BadParameter(f"--follow works with one job; there are {len(found)}")
    scheduled = [each.place for each in found if each.spec.get("schedule") is not None]
    if scheduled and (len(found) > 1 or follow):
        raise typer.BadParameter(f"{scheduled[0]} has a schedule: submit it alone, without --follow")
    specs = [each.spec | own for each in found]
    sweep_spec = _sweep_of(specs, sweep, array, more)
    with connect() as client:
        if dry_run:
            return _print_plan(client, specs, sweep_spec, as_json=as_json)
        if sweep_spec is not None:
            from torchyard.cli.sweeps.submitting import submit_sweep

            return submit_sweep(client, sweep_spec, detach=not follow, as_json=as_json, idempotency_key=idempotency_key)
        if scheduled:
            from torchyard.cli.schedules import added

            made = client.schedules.create(specs[0], idempotency_key=idempotency_key)
            return added(made, as_json=as_json)
        if len(specs) > 1:
            places = [each.place for each in found]
            with _naming(places):
                # Jobs that wait for each other are stored together.
                together = atomic or any(spec.get("after") for spec in specs)
                made = client.jobs.submit_batch(specs, atomic=together, idempotency_key=idempotency_key)
            _show_batch(made, places, as_json=as_json)
        else:
            job = client.submit(specs[0], idempotency_key=idempotency_key, forecast=not as_json).view
            accepted(client, job, follow=follow, as_json=as_json)
    return None


def _print_plan(
    client: Client, specs: Sequence[dict[str, Any]], sweep: dict[str, Any] | None, *, as_json: bool
) -> None:
    """Prints the name and the program of each job, or the arguments of each trial. Raises as `validate` does."""
    from torchyard.cli.sweeps.argv import argv, print_trials
    from torchyard.contract.sweeps.spec import parse_sweep

    if sweep is not None:
        print_trials(parse_sweep(sweep), as_json=as_json)
    else:
        found = [
            client.jobs.validate({key: value for key, value in each.items() if key != "schedule"}) for each in specs
        ]
        words = [(each, argv(each)) for each in found]
        output.show(
            [{"name": each.name, "argv": own} for each, own in words],
            (terminal.plain(f"{each.name}: {shlex.join(own) or f'the recipe {each.trainer}'}") for each, own in words),
            as_json=as_json,
        )
    terminal.note("Dry run: nothing was submitted.")


def _sweep_of(
    specs: Sequence[dict[str, Any]], sweep: list[str] | None, array: int | None, more: dict[str, Any]
) -> dict[str, Any] | None:
    """Returns the sweep of the only job, and says what varies; None if it is none."""
    asked = sweep_options.sweep_of(specs[0], sweep=sweep, array=array, more=more)
    if asked is None:
        return None
    from torchyard.cli.sweeps.submitting import announced

    if len(specs) > 1:
        raise typer.BadParameter(f"a sweep needs one job; there are {len(specs)}")
    return announced(asked.spec, asked.by)


@contextmanager
def _naming(places: Sequence[str]) -> Generator[None]:
    """Says which jobs are wrong and why, and exits with 1, if all are refused because of some."""
    from torchyard.contract.errors import TorchyardError

    try:
        yield
    except TorchyardError as error:
        fields: dict[int, list[FieldError]] = {}
        for each in error.errors:
            if (found := _OF_BATCH.fullmatch(each.field)) is not None:
                fields.setdefault(int(found[1]), []).append(replace(each, field=found[2] or ""))
        if not fields:
            raise
        for index, wrong in fields.items():
            _say_wrong(places[index], wrong)
        terminal.note(f"Submitted none of {len(places)} jobs.")
        raise typer.Exit(1) from None


def _say_wrong(place: str, fields: Sequence[FieldError], *, otherwise: str = "") -> None:
    told = [f"{each.field}: {each.message}" if each.field else each.message for each in fields]
    terminal.note(f"{place}: {'; '.join(told) or otherwise}")


def _show_batch(made: BatchView, places: list[str], *, as_json: bool) -> None:
    """Prints the ids, and says which jobs were not submitted and why. Exits with 1 if there are any."""
    if as_json:
        output.write_json(made)
    failed = 0
    for item, place in zip(made.data, places, strict=True):
        if item.error is None:
            if not as_json:
                terminal.write(item.id or "")
            continue
        failed += 1
        _say_wrong(place, item.error.errors, otherwise=item.error.detail)
    terminal.note(f"Submitted {len(made.data) - failed} of {len(made.data)} jobs.")
    if failed:
        raise typer.Exit(1)


def retry(
    job: JobArgument,
    *,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="REF", help="Continue from this checkpoint: best, epoch-N, step-N or an id."),
    ] = None,
    devices: Devices = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start with the code only: no files or checkpoints of the job.")
    ] = False,
    idempotency_key: IdempotencyKey = None,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Submit a finished job again.

    The new job continues from its newest checkpoint, or from --from. A script gets a copy of the job's working
    folder, or of its stored files; with --fresh, only the code.
    """
    with connect() as client:
        old = client.get(job)
        ref = None if from_ is None else old.checkpoint(from_).id
        if devices is not None:
            from torchyard.cli.resizing import say_change

            say_change(client, old.view, devices)
        made = client.jobs.retry(old.id, from_=ref, devices=devices, fresh=fresh, idempotency_key=idempotency_key)
        accepted(client, made.view, follow=follow, as_json=as_json)


def accepted(client: Client, job: JobView, *, follow: bool, as_json: bool) -> None:
    """Prints the id of a job that was submitted, or with `follow`, follows it and exits with the code of its state."""
    from torchyard.cli import forecasts
    from torchyard.contract.attempts.keeping import used_in_place

    come_back = f"{output.command()} logs {job.id} -f"
    in_place = used_in_place(job.spec.model_dump(mode="json"))
    expected = [*forecasts.of_submitted(job.waits_for), *([in_place] if in_place else [])]
    if follow:
        terminal.note(
            f"Submitted {job.name}: {job.id}\nFollowing its log. Ctrl-C stops following, not the job. "
            f"Follow again: {come_back}"
        )
        for line in expected:
            terminal.note(line)
        raise typer.Exit(_watch(client, job, as_json=as_json))
    output.show(job, [job.id], as_json=as_json)
    for line in expected:
        terminal.note(line)
    terminal.note(f"Submitted {job.name}. Follow it: {come_back}")


def _watch(client: Client, job: JobView, *, as_json: bool) -> int:
    from torchyard.cli.follow import Watch, detachable, exit_code
    from torchyard.cli.waiting import wait_for_start
    from torchyard.contract.jobs.views import JobView
    from torchyard.contract.states import JobState

    with detachable(job):
        last = wait_for_start(client, job)
        with Watch(log=None if as_json else output.log_line, waited=job.state == JobState.QUEUED) as watch:
            for update in client.jobs.follow(job.id, logs=not as_json, live=watch.shows_live):
                watch.show(update)
                last = update if isinstance(update, JobView) else last
    output.show(last, [], as_json=as_json)
    if not as_json and last.state.terminal and last.spec.trainer == "script":
        from torchyard.cli.keeping import say_kept

        say_kept(client, last)
    return exit_code(last)
