"""The commands `tokens`: make, list and revoke tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.contract.team.roles import Scope
from torchyard.contract.wire.units import parse_duration
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.contract.team.views import TokenView

tokens = typer.Typer(
    no_args_is_help=True,
    help="Create, list and revoke tokens.\n\nThey are your own. Administrators may manage those of others.",
)
UserOption = Annotated[str | None, typer.Option(metavar="USER", help="The token's user. Default: you.")]


@tokens.command("add")
def new(
    *,
    name: Annotated[str, typer.Option(help="A name for the token, such as laptop.")] = "token",
    user: UserOption = None,
    scope: Annotated[
        list[Scope] | None,
        typer.Option(metavar="SCOPE", help="A scope of the token. Repeatable. Default: everything its user may do."),
    ] = None,
    expires: Annotated[str, typer.Option(metavar="TIME", help="When it expires: 90d, 12h or never.")] = "90d",
    as_json: Json = False,
) -> None:
    """Create a token, and print it once."""
    lifetime = _lifetime(expires)
    with connect() as client:
        made = client.tokens.make(name=name, user=user, scopes=scope, lifetime=lifetime)
    output.show(made, [made.token], as_json=as_json)
    ends = "It does not expire" if made.expires_at is None else f"It expires at {output.moment(made.expires_at)}"
    terminal.note(f"Token {made.id} of {made.user}. It is not shown again. {ends}.")


@tokens.command("ls")
def list_tokens(*, user: UserOption = None, as_json: Json = False) -> None:
    """List tokens, newest first, without their secrets."""
    with connect() as client:
        found = [*client.tokens.list(user=user)]
    output.show(
        found,
        output.table(("ID", "NAME", "STATE", "LAST USED", "SCOPES"), [_row(token) for token in found]),
        nothing="No tokens.",
        as_json=as_json,
    )


@tokens.command("rm")
def revoke(
    tokens: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids or short ids of tokens.")],
    *,
    as_json: Json = False,
) -> None:
    """Revoke tokens. Their open streams and sessions end at once."""
    from torchyard.client.shortids import only_id

    with connect() as client:
        own = {token.id: token.name for token in client.tokens.list()}
        chosen = [only_id(ref, own) or ref for ref in tokens]
        output.do_each(chosen, client.tokens.revoke, "revoked", as_json=as_json)


def _lifetime(text: str) -> timedelta | None:
    if text == "never":
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}, or never") from None


def _row(token: TokenView) -> tuple[str, ...]:
    used = "never" if token.used_at is None else terminal.ago(token.used_at)
    return (token.id, token.name, _state(token), used, ", ".join(token.scopes))


def _state(token: TokenView) -> str:
    if token.revoked_at is not None:
        return f"revoked {terminal.ago(token.revoked_at)}"
    if token.expires_at is None:
        return "valid"
    left = (token.expires_at - datetime.now(UTC)).total_seconds()
    return f"valid for {terminal.duration(left)}" if left > 0 else f"expired {terminal.ago(token.expires_at)}"
