"""Commands that log in to servers, and say who one is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.cli.prompt import read_secret
from torchyard.contract.team.roles import Scope
from torchyard.host import terminal

if TYPE_CHECKING:
    from datetime import datetime

    from torchyard.client import Client
    from torchyard.contract.team.views import MeView


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server's address, such as https://HOST.")],
    *,
    name: Annotated[str | None, typer.Option(help="A name for the server. Default: its host and port.")] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Trust only this certificate (PEM). Default: the system's authorities."),
    ] = None,
    code: Annotated[
        str | None, typer.Option(metavar="CODE", help="A code printed by `users code`, instead of a token.")
    ] = None,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read the token from stdin.")] = False,
    as_json: Json = False,
) -> None:
    """Log in to a server.

    Asks for a token, or takes a code, and stores the login. Further commands use this server.
    """
    from torchyard.client import Client
    from torchyard.client.discovery import check_url
    from torchyard.client.logins import Login, default_name, login_file, read_logins, write_logins

    check_url(url)
    logins, name = read_logins(), name or default_name(url)
    if code is not None:
        token, known = _redeem(url, code)
    else:
        token = read_secret("token", from_stdin=token_stdin, option="--token-stdin")
        known = _read_certificate(certificate)
    with Client(url, token, certificate=known) as client:
        me = client.me()
        server = client.server
    write_logins(logins.adding(name, Login(url=server.url, token=server.token, certificate=server.certificate)))
    output.show(me, [], as_json=as_json)
    terminal.note(f"Logged in to {name} as {me.name} ({me.role}). The token is in {login_file()}.")
    for variable in ("TORCHYARD_URL", "TORCHYARD_SERVER"):
        if os.environ.get(variable) not in {None, "", name}:
            terminal.note(f"Warning: {variable} is set, and overrides this login.")


def _redeem(url: str, code: str) -> tuple[str, str | None]:
    """Returns the token for a code, and the certificate of the server. Raises what `joining.redeem` does."""
    from torchyard.client import joining
    from torchyard.contract.team.codes import parse_code

    joined = joining.redeem(url, parse_code(code), kind="user")
    return joined.view.token, joined.certificate


def _read_certificate(path: Path | None) -> str | None:
    from torchyard.contract.errors import ConfigError

    if path is None:
        return None
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(f"the certificate {path} cannot be read: {error.strerror}") from None


def logout(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The server's name. Default: the current one.")
    ] = None,
) -> None:
    """Log out of a server.

    Deletes the stored token here. It stays valid until it expires or is revoked.
    """
    from torchyard.client.logins import read_logins, write_logins
    from torchyard.contract.errors import ConfigError

    logins = read_logins()
    name = name or logins.in_use
    if name is None:
        raise ConfigError(f"no server is in use: give a name from `{output.command()} servers`")
    write_logins(logins.removing(name))
    terminal.note(f"Logged out of {name}.")


def servers(
    *,
    use: Annotated[str | None, typer.Option(metavar="NAME", help="Use this server from now on.")] = None,
    as_json: Json = False,
) -> None:
    """List your servers, or choose one.

    To choose one for a single command, set TORCHYARD_SERVER to its name.
    """
    from torchyard.client.logins import read_logins, write_logins

    logins = read_logins()
    if use is not None:
        logins = logins.using(use)
        write_logins(logins)
    found = [(name, login.url, name == logins.in_use) for name, login in logins.servers.items()]
    rows = [(name, url, "yes" if used else "") for name, url, used in found]
    output.show(
        [{"name": name, "url": url, "in_use": used} for name, url, used in found],
        output.table(("NAME", "URL", "CURRENT"), rows),
        nothing=f"No logins. Log in to a server: {output.command()} login URL",
        as_json=as_json,
    )


def whoami(*, as_json: Json = False) -> None:
    """Show your user, role and token.

    Also shows the token's scopes.
    """
    with connect() as client:
        me = client.me()
        expires_at = _expiry(client, me)
    url = client.server.url
    rows = [("name", me.name), ("role", me.role), ("scopes", ", ".join(me.scopes)), ("server", url)]
    rows += [("token", me.token_id or "the service's own token")]
    rows += [("expires", output.moment(expires_at))] if expires_at is not None else []
    expiry = None if expires_at is None else expires_at.isoformat()
    found = {**me.model_dump(mode="json"), "url": url, "expires_at": expiry}
    output.show(found, (f"{label:<11}{text}" for label, text in rows), as_json=as_json)


def _expiry(client: Client, me: MeView) -> datetime | None:
    """Returns when the caller's token expires, if it does and the caller may know it."""
    if me.token_id is None or Scope.TOKENS not in me.scopes:
        return None
    return next((token.expires_at for token in client.tokens.list() if token.id == me.token_id), None)
