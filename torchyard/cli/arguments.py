"""Arguments that several commands share, and the client that they use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli.completion import job_names

if TYPE_CHECKING:
    from torchyard.client import Client

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job's name (its newest job), its id or its short id.",
        autocompletion=job_names,
    ),
]
WeightsArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="JOB (its best checkpoint, else its latest), JOB/REF such as digits/best, SWEEP/best, or "
        "model:NAME@VERSION.",
        autocompletion=job_names,
    ),
]
JobsArgument = Annotated[
    list[str], typer.Argument(metavar="JOB…", help="Names, ids or short ids.", autocompletion=job_names)
]
WorkersArgument = Annotated[list[str], typer.Argument(metavar="WORKER…", help="Host names, ids or short ids.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The job spec, YAML or JSON; - reads stdin.")]
FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE…",
        help="Job specs or a sweep: YAML documents, JSON or JSON Lines; - reads stdin.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow the job until it finishes.")]
Devices = Annotated[
    int | None,
    typer.Option(min=1, max=1024, metavar="N", help="GPUs or CPU slots per node. Default: as before."),
]

IdempotencyKey = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="A repeated command with the same KEY submits nothing new."),
]


def connect(*, patience: float = 30.0) -> Client:
    """Returns a client of the server that the environment, the login or the working directory names."""
    from torchyard.client import Client

    return Client(patience=patience)


def label_of(text: str) -> tuple[str, str]:
    """Parses a label, `KEY=VALUE`. Raises BadParameter."""
    key, found, value = text.partition("=")
    if not (key and found):
        raise typer.BadParameter(f"{text!r} is not a label: write KEY=VALUE")
    return key, value


def seconds_of(text: str, *, option: str) -> float:
    """Parses the duration `90s`, `15m`, `24h` or `7d` of an option. Raises BadParameter, naming the option."""
    from torchyard.contract.wire.units import parse_duration

    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def moment(text: str) -> datetime:
    """Parses `10m` (ten minutes ago) or an RFC 3339 time. Raises BadParameter."""
    from torchyard.contract.wire.units import parse_duration

    try:
        return datetime.now(UTC) - parse_duration(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a duration (10m, 2h, 1d) nor a time (2026-01-31T12:00:00Z)"
        ) from None
