"""The command `audit`: lists who did what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect

if TYPE_CHECKING:
    from torchyard.contract.team.views import AuditView


def audit(
    *,
    who: Annotated[str | None, typer.Option(help="Only actions of this user.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action, such as job.cancel, or job for all of them.")
    ] = None,
    on: Annotated[str | None, typer.Option("--object", help="Only actions on this object, such as a job's id.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Only this result: ok, or an error code.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="List at most N entries.")] = 100,
    as_json: Json = False,
) -> None:
    """Show the audit log, newest first.

    For administrators.
    """
    with connect() as client:
        found = [*client.audit(who=who, action=action, object=on, outcome=outcome, limit=limit)]
    headers = ("TIME", "WHO", "ACTION", "OBJECT", "OUTCOME", "ADDRESS", "TOKEN", "REQUEST")
    output.show(found, output.table(headers, [_entry(item) for item in found], short=False), as_json=as_json)


def _entry(entry: AuditView) -> tuple[str, ...]:
    when = f"{entry.time:%Y-%m-%d %H:%M:%S}"
    source = (entry.address, entry.token_id or "", entry.request_id)
    return (when, entry.who, entry.action, entry.object, entry.outcome, *source)
