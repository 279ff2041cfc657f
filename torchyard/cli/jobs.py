"""Commands about jobs on a running server."""

from __future__ import annotations

from pathlib import Path
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.cli import output

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.views import CheckpointView, JobView, LogLine

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or its name: the newest of that name.")]


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The job spec, YAML or JSON; - reads stdin.")],
    *,
    name: Annotated[str | None, typer.Option(help="Overrides the spec's name.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Watch the job until it ends.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a job. Prints its id; with --follow its log, and its exit code is the job's."""
    spec = _read_spec(file)
    if name is not None:
        spec["name"] = name
    with _client() as client:
        job = client.submit(spec)
        if not follow:
            output.write_json(job) if as_json else output.write(job.id)
            output.note(f"Submitted {job.name}. Watch it: {output.command()} logs {job.id} -f")
            return
        output.note(f"Submitted {job.name}: {job.id}")
        raise typer.Exit(_watch(client, job, as_json=as_json))


def ps(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many.")] = 20,
    state: Annotated[list[str] | None, typer.Option(help="Only jobs in this state. Repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    with _client() as client:
        jobs = [*client.list(state=state or (), limit=limit)]
    if as_json:
        return output.write_json(jobs)
    headers = ("ID", "NAME", "STATE", "CREATED", "PROGRESS", "BEST", "WHY")
    heading, *lines = output.table(headers, [_row(job) for job in jobs])
    output.write(heading)
    for line, job in zip(lines, jobs, strict=True):
        output.write(output.paint_state(line, job.state))
    if not jobs:
        output.note(f"No jobs yet: {output.command()} submit FILE")
    return None


def show(job: JobArgument, *, as_json: Json = False) -> None:
    """Show one job and its checkpoints."""
    with _client() as client:
        found = client.find(job)
        if as_json:
            return output.write_json(found)
        checkpoints = [*client.checkpoints(found.id)]
    for label, text in _facts(found):
        output.write(
            output.paint_state(f"{label:<11}{text}", found.state) if label == "state" else f"{label:<11}{text}"
        )
    if found.error is not None and found.error.traceback:
        output.write(f"\n{found.error.traceback.rstrip()}")
    if checkpoints:
        rows = [_checkpoint_row(item) for item in checkpoints]
        output.write("")
        for line in output.table(("CHECKPOINT", "EPOCH", "STEP", "SIZE", "ALIASES", "METRICS"), rows):
            output.write(line)
    return None


def logs(
    job: JobArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank's lines.")] = None,
    tail: Annotated[int | None, typer.Option(min=1, help="Only the last N lines, and what follows.")] = None,
    as_json: Json = False,
) -> None:
    """Print a job's output. With --follow the exit code is the job's."""
    from torchyard.cli.follow import detachable, exit_code

    def show_line(line: LogLine) -> None:
        output.write(line.model_dump_json() if as_json else _log_text(line, with_rank=rank is None))
        sys.stdout.flush()

    with _client() as client:
        found = client.find(job)
        last = 0
        for line in client.logs(found.id, tail=tail, rank=rank):
            last = line.line
            show_line(line)
        if not follow:
            if not last:
                output.note("No output.")
            return
        with detachable(found):
            for line in client.follow_logs(found.id, after=last, rank=rank):
                show_line(line)
        raise typer.Exit(exit_code(client.get(found.id)))


def download(
    job: JobArgument,
    *,
    best: Annotated[bool, typer.Option("--best", help="The best by the job's monitored metric (the default).")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="The newest.")] = False,
    epoch: Annotated[int | None, typer.Option(min=1, help="That of epoch N.")] = None,
    ref: Annotated[str | None, typer.Option(help="An id, or an alias such as step-300.")] = None,
    to: Annotated[Path, typer.Option("--output", "-o", help="A file, or a folder.")] = Path(),
    as_json: Json = False,
) -> None:
    """Download a checkpoint and verify its sha256. Prints its path."""
    import json

    from torchyard.cli.follow import download_with_bar

    choices = (("best", best), ("latest", latest), (f"epoch-{epoch}", epoch), (ref or "", ref))
    names = [name for name, given in choices if given]
    if len(names) > 1:
        raise typer.BadParameter("choose one of --best, --latest, --epoch and --ref")
    with _client() as client:
        found = client.find(job)
        checkpoint = client.checkpoint(found.id, names[0] if names else "best")
        path = download_with_bar(client, found.id, checkpoint, to=to)
    if as_json:
        output.write(json.dumps({"path": str(path), "checkpoint": checkpoint.model_dump(mode="json")}))
    else:
        output.write(str(path))
    output.note(f"sha256 {checkpoint.sha256} is the listed one.")


def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB…", help="Ids or names.")],
    *,
    as_json: Json = False,
) -> None:
    """Cancel jobs. A running one saves a checkpoint before it stops."""
    with _client() as client:
        cancelled = [client.cancel(client.find(ref).id) for ref in jobs]
    if as_json:
        return output.write_json(cancelled)
    for job in cancelled:
        output.write(f"{job.id}  {job.state}{'' if job.state.terminal else ', is being cancelled'}")
    return None


def _client() -> Client:
    from torchyard.client import Client

    return Client()


def _read_spec(file: str) -> dict[str, Any]:
    import yaml

    from torchyard.errors import InvalidSpec

    name = "standard input" if file == "-" else file
    try:
        # JSON is YAML too.
        spec = yaml.safe_load(sys.stdin if file == "-" else Path(file).read_bytes())
    except OSError as error:
        raise InvalidSpec(f"the spec cannot be read: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"{name} is neither YAML nor JSON: {error}") from None
    if not isinstance(spec, dict):
        raise InvalidSpec(f"{name} is no job spec: that is a mapping with a `trainer`")
    return spec


def _watch(client: Client, job: JobView, *, as_json: bool) -> int:
    from torchyard.cli.follow import Watch, detachable, exit_code

    with detachable(job), Watch(log=None if as_json else lambda line: _log_text(line, with_rank=True)) as watch:
        for update in client.follow(job.id, logs=not as_json):
            watch.show(update)
    last = client.get(job.id)
    if as_json:
        output.write_json(last)
    return exit_code(last)


def _log_text(line: LogLine, *, with_rank: bool) -> str:
    if not with_rank:
        return line.text
    source = "launcher" if line.rank is None else f"rank {line.rank}"
    return f"{output.paint(f'{source} |', '2', sys.stdout)} {line.text}"


def _row(job: JobView) -> tuple[str, ...]:
    best = f"{job.best.metric} {job.best.value:.4g}" if job.best is not None else ""
    why = job.error.message.splitlines()[0] if job.error and job.error.message else job.status_reason.message
    shown_why = "" if job.state in {"running", "succeeded"} else why
    return (job.id, job.name, job.state, output.ago(job.created_at), output.short_progress(job), best, shown_why)


def _facts(job: JobView) -> list[tuple[str, str]]:
    facts = [("id", job.id), ("name", job.name), ("trainer", job.spec.trainer)]
    facts += [("state", f"{job.state}: {job.status_reason.message}"), ("attempt", str(job.attempt))]
    facts += [("labels", ", ".join(f"{key}={value}" for key, value in job.labels.items()))]
    facts += [("devices", ", ".join(f"{device.name} #{device.index}" for device in job.devices))]
    facts += [("progress", output.progress(job)), ("metrics", output.metrics(job.metrics))]
    if job.best is not None:
        facts.append(("best", f"{job.best.metric} {job.best.value:.6g} at step {job.best.step}"))
    facts += [
        (label, f"{moment:%Y-%m-%d %H:%M:%S} UTC ({output.ago(moment)})")
        for label, moment in (("created", job.created_at), ("started", job.started_at), ("finished", job.finished_at))
        if moment is not None
    ]
    if job.error is not None:
        where = f", rank {job.error.rank}" if job.error.rank is not None else ""
        code = f", exit code {job.error.exit_code}" if job.error.exit_code is not None else ""
        facts.append(("error", f"{job.error.message} ({job.error.code}{where}{code})"))
    return [(label, text) for label, text in facts if text]


def _checkpoint_row(checkpoint: CheckpointView) -> tuple[str, ...]:
    return (
        checkpoint.id,
        "" if checkpoint.epoch is None else str(checkpoint.epoch),
        str(checkpoint.step),
        output.size(checkpoint.size),
        ", ".join(checkpoint.aliases),
        output.metrics(checkpoint.metrics),
    )
