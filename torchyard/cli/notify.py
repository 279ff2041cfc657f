"""The commands `notify`: where the service tells a user what happens, and what became of each message."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.contract.notifications.kinds import EventKind, TargetKind
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.contract.notifications.views import MessageView, TargetView

notify = typer.Typer(
    no_args_is_help=True,
    help="Manage notification channels.\n\nA channel is a webhook, Slack, Discord or email. It gets "
    "a message when jobs and sweeps finish.",
)
TargetArgument = Annotated[str, typer.Argument(metavar="NAME", help="A channel's name or id.")]
OnOption = Annotated[
    list[EventKind] | None,
    typer.Option("--on", metavar="KIND", help="An event to send, such as job.failed. Repeatable."),
]
UserOption = Annotated[
    str | None, typer.Option(metavar="USER", help="The channel's owner. Default: you. Others: for administrators.")
]
_LOOK_EVERY_S = 0.5


@notify.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for the channel, such as alerts.")],
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="A URL or an email address; - reads stdin.")],
    *,
    kind: Annotated[
        TargetKind | None,
        typer.Option(help="The kind of channel. Default: detected from the address."),
    ] = None,
    on: OnOption = None,
    named: Annotated[
        bool, typer.Option("--named", help="Send only events of jobs whose spec names the channel.")
    ] = False,
    everybody: Annotated[
        bool, typer.Option("--all", help="Send events of all users and lost workers, too (administrators).")
    ] = False,
    user: UserOption = None,
    as_json: Json = False,
) -> None:
    """Add a notification channel.

    By default it gets job failures and successes, and finished sweeps. The secret that signs webhooks is printed
    once. Only administrators may add email addresses.
    """
    address = sys.stdin.readline().strip() if address == "-" else address
    with connect() as client:
        made = client.notifications.add(
            name,
            address,
            kind=kind or _kind_of(address),
            on=on or None,
            jobs="named" if named else "all",
            scope="all" if everybody else "own",
            user=user,
        )
    output.show(made, [f"{made.name}  {made.kind}  {made.address}"], as_json=as_json)
    if made.secret is not None and not as_json:
        terminal.write(f"secret  {made.secret}")
        terminal.note("This secret signs the webhooks. It is not shown again.")
    terminal.note(f"Test it: {output.command()} notifications test {made.name}")


@notify.command("ls")
def ls(*, user: UserOption = None, as_json: Json = False) -> None:
    """List channels, with pending and failed messages."""
    with connect() as client:
        found = [*client.notifications.targets(user=user)]
    output.show(
        found,
        output.table(("NAME", "KIND", "STATE", "ON", "ADDRESS"), map(_row, found)),
        nothing=f"No notification channels. Add one: {output.command()} notifications add NAME https://…",
        as_json=as_json,
    )


@notify.command("show")
def show(
    target: TargetArgument,
    *,
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="Show the N newest messages.")] = 20,
    user: UserOption = None,
    as_json: Json = False,
) -> None:
    """Show a channel and its newest messages.

    Shows which were delivered, which are pending, and why others failed.
    """
    with connect() as client:
        found = client.notifications.find(target, user=user)
        messages = [*client.notifications.messages(target_id=found.id, user=user, limit=count)]
    lines = [f"{label:<10} {terminal.plain(value)}" for label, value in _details(found)]
    if messages:
        lines += [
            "",
            *output.table(("CREATED", "STATE", "MESSAGE", "ERROR", "TRIES", "ID"), map(_message_row, messages)),
        ]
    output.show({**found.model_dump(mode="json"), "messages": messages}, lines, as_json=as_json)


@notify.command("set")
def change(
    target: TargetArgument,
    *,
    on: OnOption = None,
    named: Annotated[
        bool | None,
        typer.Option("--named/--every", help="Send events of jobs whose spec names the channel, or of every job."),
    ] = None,
    user: UserOption = None,
    as_json: Json = False,
) -> None:
    """Change which events a channel gets."""
    jobs = None if named is None else ("named" if named else "all")
    with connect() as client:
        found = client.notifications.find(target, user=user)
        changed = client.notifications.change(found.id, on=on or None, jobs=jobs)
    output.show(changed, [f"{changed.name}  {_on(changed)}"], as_json=as_json)


@notify.command("test")
def send_test(
    target: TargetArgument,
    *,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Seconds to wait for the result.")] = 30.0,
    user: UserOption = None,
    as_json: Json = False,
) -> None:
    """Send a test message to a channel. Exits with 1 if it does not arrive."""
    with connect() as client:
        found = client.notifications.find(target, user=user)
        message = _awaited(client, client.notifications.send_test(found.id), user=user, timeout=timeout)
    if message.state == "delivered":
        return output.show(message, [f"{message.id}  delivered"], as_json=as_json)
    again = " The service retries." if message.state == "waiting" else ""
    why = message.error or f"not sent within {timeout:g} s; is a controller running?"
    output.show(message, [], notes=[f"{message.id} did not arrive: {why}.{again}"], as_json=as_json)
    raise typer.Exit(1)


@notify.command("rm")
def rm(
    targets: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names or ids of channels.")],
    *,
    user: UserOption = None,
    as_json: Json = False,
) -> None:
    """Delete channels. Their pending messages are dropped."""
    with connect() as client:
        found = [client.notifications.find(ref, user=user) for ref in targets]
        ids, names = [target.id for target in found], {target.id: target.name for target in found}
        output.do_each(ids, client.notifications.remove, "deleted", as_json=as_json, names=names)


def _kind_of(address: str) -> TargetKind:
    """Returns how an address is told that looks like this one."""
    if "://" not in address and "@" in address:
        return "mail"
    host, _, path = address.partition("://")[2].partition("/")
    if host == "hooks.slack.com":
        return "slack"
    is_discord = host in {"discord.com", "discordapp.com"} and path.startswith("api/webhooks/")
    return "discord" if is_discord else "webhook"


def _awaited(client: Client, message: MessageView, *, user: str | None, timeout: float) -> MessageView:
    """Returns the message as it is once it was tried, or after so many seconds."""
    ends = time.monotonic() + timeout
    while message.state == "waiting" and message.error is None and time.monotonic() < ends:
        time.sleep(_LOOK_EVERY_S)
        newest = client.notifications.messages(target_id=message.target_id, user=user, limit=100)
        message = next((each for each in newest if each.id == message.id), message)
    return message


def _row(target: TargetView) -> tuple[str, ...]:
    return (target.name, target.kind, _state(target), _on(target), target.address)


def _on(target: TargetView) -> str:
    kinds = ", ".join(target.on)
    return f"{kinds} of named jobs" if target.jobs == "named" else kinds


def _state(target: TargetView) -> str:
    """Says what became of the newest messages: failures first."""
    parts = [
        f"failed {terminal.ago(target.failed_at)}: {target.error}" if target.error and target.failed_at else "",
        f"{target.given_up} given up" if target.given_up else "",
        f"{target.waiting} waiting" if target.waiting else "",
        f"delivered {terminal.ago(target.delivered_at)}" if target.delivered_at else "",
    ]
    return "; ".join(filter(None, parts)) or "nothing sent yet"


def _details(target: TargetView) -> list[tuple[str, str]]:
    return [
        ("target", f"{target.name} ({target.id})"),
        ("owner", target.owner),
        ("address", f"{target.kind}  {target.address}"),
        ("events", _on(target) + (", of all users" if target.scope == "all" else "")),
        ("state", _state(target)),
    ]


def _message_row(message: MessageView) -> tuple[str, ...]:
    made = terminal.ago(message.created_at)
    state = message.state.replace("_", " ")
    return (made, state, message.title, message.error or "", str(message.attempts), message.id)
