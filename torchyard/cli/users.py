"""The commands `users`: add, list, change and disable the users of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import typer

from torchyard.cli import output, pasted
from torchyard.cli.arguments import Json, connect
from torchyard.cli.workers import PipOption, UrlOption
from torchyard.contract.team.roles import Role
from torchyard.host import terminal
from torchyard.host.listening import is_loopback

if TYPE_CHECKING:
    from torchyard.contract.team.views import UserView

users = typer.Typer(no_args_is_help=True, help="Manage users.\n\nFor administrators.")
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="A user's name.")]


@users.command("add")
def add(
    name: UserArgument,
    *,
    role: Annotated[Role, typer.Option(help="The user's role.")] = Role.MEMBER,
    as_json: Json = False,
) -> None:
    """Add a user, and print how they log in."""
    with connect() as client:
        user = client.users.add(name, role=role)
        url = client.server.url
    _print(user, as_json=as_json)
    terminal.note(
        f"Create a token: {output.command()} tokens add --user {user.name}\n"
        f"{user.name} then runs: {output.command()} login {url}   (it asks for the token)"
    )
    if is_loopback(urlsplit(url).hostname or ""):
        terminal.note(
            f"{url} is reachable only from this machine. For others: start the service with `up "
            "--host ADDRESS`, and log in to http://ADDRESS:PORT."
        )


@users.command("code")
def code(
    name: UserArgument,
    *,
    url: UrlOption = None,
    pip: PipOption = False,
    as_json: Json = False,
) -> None:
    """Print a line that logs a user in on another machine.

    The line works once, within ten minutes. It contains the fingerprint of the server's certificate. On a machine
    with the command line, only the part from `login` on is needed.
    """
    with connect() as client:
        made = client.users.code(name)
        found, address = pasted.checked(made), pasted.address(client, made, url)
    line = f"{pasted.installing(made, found, address, with_pip=pip)} login {address} --code {found.text}"
    pasted.show(made, line, who=f"on {name}'s machine", as_json=as_json)


@users.command("ls")
def list_users(*, as_json: Json = False) -> None:
    """List the users."""
    with connect() as client:
        found = [*client.users.list()]
    output.show(
        found, output.table(("NAME", "ROLE", "STATE", "ADDED"), [_row(user) for user in found]), as_json=as_json
    )


@users.command("role")
def set_role(name: UserArgument, role: Role, *, as_json: Json = False) -> None:
    """Change the role of a user."""
    with connect() as client:
        _print(client.users.change(name, role=role), as_json=as_json)


@users.command("disable")
def disable(
    name: UserArgument,
    *,
    jobs: Annotated[Literal["keep", "cancel"], typer.Option(help="What to do with the user's jobs.")] = "keep",
    as_json: Json = False,
) -> None:
    """Disable a user. Their tokens and sessions end at once."""
    with connect() as client:
        _print(client.users.change(name, disabled=True, jobs=jobs), as_json=as_json)


@users.command("enable")
def enable(name: UserArgument, *, as_json: Json = False) -> None:
    """Enable a disabled user. Their tokens are valid again."""
    with connect() as client:
        _print(client.users.change(name, disabled=False), as_json=as_json)


def _print(user: UserView, *, as_json: bool) -> None:
    output.show(user, ["  ".join(_row(user)[:3])], as_json=as_json)


def _row(user: UserView) -> tuple[str, ...]:
    state = "enabled" if user.disabled_at is None else f"disabled {terminal.ago(user.disabled_at)}"
    return (user.name, user.role, state, terminal.ago(user.created_at))
