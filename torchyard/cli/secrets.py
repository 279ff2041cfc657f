"""The commands `secrets`: set, list and delete the secrets that one's jobs get in their environment."""

from __future__ import annotations

from typing import Annotated

import typer

from torchyard.cli import output, prompt
from torchyard.cli.arguments import Json, connect
from torchyard.cli.choosing import Yes
from torchyard.host import terminal

secrets = typer.Typer(
    no_args_is_help=True,
    help="Manage secrets, such as API keys.\n\nOnly your jobs get their values. A spec names them "
    "in env, as {secret: NAME}.",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="A name such as WANDB_API_KEY.")]


@secrets.command("set")
def set_secret(
    name: Name,
    *,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the value from stdin.")] = False,
    as_json: Json = False,
) -> None:
    """Store a secret, or a new value. Asks for the value."""
    value = prompt.read_secret("value", from_stdin=stdin, option="--stdin")
    with connect() as client:
        stored = client.secrets.set(name, value)
    output.show(stored, [f"{stored.name}  stored"], as_json=as_json)


@secrets.command("ls")
def list_secrets(*, as_json: Json = False) -> None:
    """List the names of your secrets."""
    with connect() as client:
        found = [*client.secrets.list()]
    output.show(
        found,
        output.table(("NAME", "SET"), [(secret.name, terminal.ago(secret.updated_at)) for secret in found]),
        nothing="No secrets.",
        as_json=as_json,
    )


@secrets.command("rm")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names of secrets.")],
    *,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete secrets. Jobs that name them and start later fail."""
    if not yes:
        prompt.confirm("Delete these secrets? Their values are not stored elsewhere.", (f"  {name}" for name in names))
    with connect() as client:
        output.do_each(names, client.secrets.delete, "deleted", as_json=as_json)


@secrets.command("rotate")
def rotate(*, as_json: Json = False) -> None:
    """Encrypt all secrets with the newest key.

    For administrators. Re-encrypts every user's secrets with the first key. Older keys can then be deleted.
    """
    with connect() as client:
        rotated = client.secrets.rotate()
    text = f"re-encrypted {rotated.encrypted} secrets; older keys can be deleted"
    output.show(rotated, [text], as_json=as_json)
