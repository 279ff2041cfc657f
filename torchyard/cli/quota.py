"""The commands `quota`: show and set how much users may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.contract.team.roles import Resource, Role
from torchyard.contract.wire.units import parse_size
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client.core.team import QuotaKind

quota = typer.Typer(no_args_is_help=True, help="Show or set quotas.\n\nOnly administrators set them.")
RoleOption = Annotated[Role | None, typer.Option(help="Set it for every user of this role, instead of one user.")]

_UNLIMITED = "unlimited"


@quota.command("show")
def show(
    user: Annotated[str | None, typer.Argument(metavar="USER", help="The user. Default: you.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Show a user's quotas and usage.

    A user's own limits replace those of the role.
    """
    with connect() as client:
        found = client.quotas.get(user or client.me().name)
    rows = [(use.resource, _shown(use.resource, use.limit), _used(use.resource, use.used)) for use in found.uses]
    output.show(found, output.table(("RESOURCE", "LIMIT", "USED"), rows), as_json=as_json)


@quota.command("ls")
def list_quotas(*, as_json: Json = False) -> None:
    """List the quotas of roles and users."""
    with connect() as client:
        found = [*client.quotas.list()]
    rows = [
        (item.kind, item.name, resource, _shown(resource, limit))
        for item in found
        for resource, limit in item.limits.items()
    ]
    output.show(found, output.table(("KIND", "NAME", "RESOURCE", "LIMIT"), rows), as_json=as_json)


@quota.command("set")
def set_limits(
    arguments: Annotated[
        list[str], typer.Argument(metavar="[USER] RESOURCE=LIMIT…", help="Such as: alice devices=4 stored_bytes=200GiB")
    ],
    *,
    role: RoleOption = None,
) -> None:
    """Set quotas. Others stay as they are.

    Resources: devices and running (jobs) at once, queued (also paused jobs), priority (the highest), stored_bytes. A
    limit is a number or `unlimited`; bytes may end in KiB, MiB, GiB or TiB. share is the weight in fair share, from 1
    to 10000; the default is 100.
    """
    kind, name, texts = _target(arguments, role)
    limits = dict(_limit(text) for text in texts)
    if not limits:
        raise typer.BadParameter("give a quota, such as devices=4")
    with connect() as client:
        client.quotas.set(name, kind=kind, limits=limits)
    terminal.note(f"Quotas of the {kind} {name}: {', '.join(_pair(*limit) for limit in limits.items())}")


@quota.command("rm")
def clear(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[USER] [RESOURCE…]", help="The resources. Default: all.")
    ] = None,
    *,
    role: RoleOption = None,
) -> None:
    """Remove quotas. The role's quotas apply then."""
    kind, name, texts = _target(arguments or [], role)
    resources = [_resource(text) for text in texts]
    with connect() as client:
        client.quotas.clear(name, kind=kind, resources=resources)
    terminal.note(f"Removed from the quotas of the {kind} {name}: {', '.join(resources) or 'all'}")


def _target(arguments: list[str], role: Role | None) -> tuple[QuotaKind, str, list[str]]:
    """Returns whose limits are meant, and the further arguments."""
    if role is not None:
        return "role", role, arguments
    if not arguments or "=" in arguments[0]:
        raise typer.BadParameter("give a user, or a role with --role")
    return "user", arguments[0], arguments[1:]


def _limit(text: str) -> tuple[Resource, int | None]:
    """Parses `devices=4`. Raises BadParameter."""
    key, _, value = text.partition("=")
    resource = _resource(key)
    if value == _UNLIMITED and resource is not Resource.SHARE:
        return resource, None
    try:
        return resource, parse_size(value) if resource is Resource.STORED_BYTES else int(value)
    except ValueError:
        others = "" if resource is Resource.SHARE else f" or RESOURCE={_UNLIMITED}"
        raise typer.BadParameter(f"{text!r} is not a quota: write RESOURCE=NUMBER{others}") from None


def _resource(text: str) -> Resource:
    if text not in set(Resource):
        raise typer.BadParameter(f"{text!r} is not a resource: use {', '.join(Resource)}")
    return Resource(text)


def _pair(resource: Resource, limit: int | None) -> str:
    return f"{resource} {_shown(resource, limit)}"


def _shown(resource: Resource, limit: int | None) -> str:
    return _UNLIMITED if limit is None else _used(resource, limit)


def _used(resource: Resource, count: int | None) -> str:
    if count is None:
        return ""
    return terminal.size(count) if resource is Resource.STORED_BYTES else str(count)
