"""Commands that validate and submit specs, and retry jobs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.cli import output
from torchyard.cli.arguments import FileArgument, Follow, IdempotencyKey, JobArgument, Json, connect
from torchyard.contract.team import Visibility
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.contract.views.jobs import JobView


def validate(file: FileArgument, *, as_json: Json = False) -> None:
    """Print a job spec with every default filled in, or its errors."""
    import yaml

    with connect() as client:
        spec = client.validate(_read_spec(file))
    if as_json:
        return output.write_json(spec)
    resolved = {"trainer": spec.trainer, "name": spec.name, **spec.model_dump(mode="json")}
    text = yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=120)
    return terminal.write(text.rstrip())


def submit(
    file: FileArgument,
    *,
    name: Annotated[str | None, typer.Option(help="Overrides the spec's name.")] = None,
    visibility: Annotated[
        Visibility | None, typer.Option(help="Overrides the spec's visibility: who may read the job.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Submit a job and print its id. With --follow, print its log, and exit with 1 if it fails."""
    spec = _read_spec(file)
    spec |= {key: value for key, value in (("name", name), ("visibility", visibility)) if value is not None}
    with connect() as client:
        accepted(client, client.submit(spec, idempotency_key=idempotency_key).view, follow=follow, as_json=as_json)


def retry(
    job: JobArgument, *, idempotency_key: IdempotencyKey = None, follow: Follow = False, as_json: Json = False
) -> None:
    """Submit an ended job again. The new job continues from its newest checkpoint."""
    with connect() as client:
        accepted(
            client,
            client.retry(client.get(job).id, idempotency_key=idempotency_key).view,
            follow=follow,
            as_json=as_json,
        )


def accepted(client: Client, job: JobView, *, follow: bool, as_json: bool) -> None:
    """Prints the id of a job that was submitted, or with `follow`, follows it and exits with the code of its state."""
    come_back = f"{output.command()} logs {job.id} -f"
    if follow:
        terminal.note(f"Submitted {job.name}: {job.id}\nCtrl-C leaves it alone. To come back: {come_back}")
        raise typer.Exit(_watch(client, job, as_json=as_json))
    output.write_json(job) if as_json else terminal.write(job.id)
    terminal.note(f"Submitted {job.name}. Follow it: {come_back}")


def _watch(client: Client, job: JobView, *, as_json: bool) -> int:
    from torchyard.cli.follow import Watch, detachable, exit_code
    from torchyard.cli.waiting import wait_for_start
    from torchyard.contract.job import JobState
    from torchyard.contract.views.jobs import JobView

    with detachable(job):
        last = wait_for_start(client, job)
        with Watch(log=None if as_json else output.log_line, waited=job.state == JobState.QUEUED) as watch:
            for update in client.follow(job.id, logs=not as_json, live=watch.shows_live):
                watch.show(update)
                last = update if isinstance(update, JobView) else last
    if as_json:
        output.write_json(last)
    return exit_code(last)


def _read_spec(file: str) -> dict[str, Any]:
    import yaml

    from torchyard.contract.errors import InvalidSpec, TooLarge
    from torchyard.contract.spec import MOST_SPEC_BYTES

    name = "standard input" if file == "-" else file
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as source:
            written = source.read(MOST_SPEC_BYTES + 1)
        if len(written) > MOST_SPEC_BYTES:
            raise TooLarge(f"{name} is too large to be a job spec, which has at most {MOST_SPEC_BYTES} bytes")
        spec = yaml.safe_load(written)  # JSON is valid YAML
    except OSError as error:
        raise InvalidSpec(f"{name} cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise InvalidSpec(f"{name} is nested too deep to be a job spec") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"{name} is neither YAML nor JSON: {error}") from None
    if not isinstance(spec, dict):
        raise InvalidSpec(f"{name} is not a job spec, which is a mapping with the key `trainer`")
    return spec
