"""Commands that run the service on this machine."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import output, page
from torchyard.cli.arguments import Json, seconds_of
from torchyard.cli.up.folders import allowed_folders
from torchyard.host import terminal
from torchyard.host.datadir import own_data_dir

if TYPE_CHECKING:
    from torchyard.cli.up.service import Service
    from torchyard.client.logins import Login

FoundDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="The service's data directory. Default: .torchyard here if a service uses it, else your own."
    ),
]
DataDirOption = Annotated[Path, typer.Option("--data-dir", help="The data directory.")]


def up(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, envvar="TORCHYARD_PORT", help="Port to listen on; 0: any free one. Default: 8000."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="The data directory. Default: .torchyard here; your own with --detach."),
    ] = None,
    cpu_slots: Annotated[
        int | None, typer.Option(min=0, help="CPU slots to offer if there is no GPU.", show_default=False)
    ] = None,
    allow_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR[:rw]",
            help="Let jobs read file:// data and code in this folder; with :rw, also write. Repeatable.",
        ),
    ] = None,
    database: Annotated[str | None, typer.Option(metavar="URL", help="SQL database. Default: SQLite.")] = None,
    redis: Annotated[str | None, typer.Option(metavar="URL", help="Redis. Default: an embedded one.")] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Use HTTPS. Creates a certificate unless --cert is given.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="The certificate chain, PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's private key, PEM.")
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", "-d", help="Run in the background. Default: a free port, your own data directory."),
    ] = False,
    end_when_idle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stop after this time without jobs, schedules and requests: 1h."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check whether it can start here. Start nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Start the service on this machine.

    Runs the API, a worker, a controller, the database and the queue in the foreground, and restarts those that fail.
    Ctrl-C stops it.
    """
    from torchyard.cli.up.service import Options, Service
    from torchyard.host.listening import is_loopback
    from torchyard.host.tls import given

    own_tls = given(tls_cert, tls_key)
    tls = tls or own_tls is not None
    if not (tls or is_loopback(host)):
        _say(
            f"Warning: {host} is reachable from the network without encryption. Anyone with the token "
            "can run code here. --tls encrypts."
        )
    allowed = allowed_folders(allow_path or ())
    idle_limit_s = None if end_when_idle is None else seconds_of(end_when_idle, option="--end-when-idle")
    if detach:
        given = {"host": host, "port": port or 0, "cpu-slots": cpu_slots, "database": database, "redis": redis}
        options = [f"--{name}={value}" for name, value in given.items() if value is not None]
        options += [f"--allow-path={folder}{':rw' if writable else ''}" for folder, writable in allowed.items()]
        options += ["--tls"] * tls
        options += [] if own_tls is None else [f"--tls-cert={own_tls.certificate}", f"--tls-key={own_tls.key}"]
        options += [f"--end-when-idle={end_when_idle}"] if end_when_idle is not None else []
        return _start_detached(data_dir, options, as_json=as_json)
    options = Options(
        host,
        8000 if port is None else port,
        data_dir or Path(".torchyard"),
        cpu_slots,
        allowed,
        database,
        redis,
        tls,
        own_tls,
        idle_limit_s,
    )
    service = Service(options, say=_say)
    if check:
        return service.check()

    _say("Starting …")
    service.run(lambda url, token: _say_ready(service, url, token, as_json=as_json))
    return _say("Stopped.")


def down(*, data_dir: FoundDirOption = None, as_json: Json = False) -> None:
    """Stop the service on this machine.

    Running jobs get time to save, and return to the queue. The next start continues them.
    """
    from torchyard.cli.up import own

    root = own.found_dir(data_dir)
    use = {} if as_json else _stopped_use(own.find(root))
    stopped = own.stop(root)
    output.show(
        {"data_dir": str(root), "stopped": stopped},
        [f"stopped {root}" if stopped else f"no service uses {root}"],
        as_json=as_json,
    )
    if stopped and (counts := [output.count(number, noun) for noun, number in use.items() if number]):
        _say(f"Stopped: {', '.join(counts)}. They continue after the next start.")


def status(*, data_dir: FoundDirOption = None, as_json: Json = False) -> None:
    """Show the service on this machine.

    Exits with 1 if none runs. For a job, use `torchyard show`.
    """
    from torchyard.cli.up import own

    root = own.found_dir(data_dir)
    running = own.find(root)
    if running is None:
        output.show(
            {"data_dir": str(root), "url": None},
            [f"no service uses {root}. Start one: {output.command()} up --detach"],
            as_json=as_json,
        )
        raise typer.Exit(1)
    use = _use(running)
    found = {"data_dir": str(root), "url": running.url, **use}
    lines = [f"{name.replace('_', ' '):<10}{value}" for name, value in found.items()]
    if use["schedules"]:
        lines.append("It keeps running while it has schedules.")
    output.show(found, ["\n".join(lines)], as_json=as_json)


def _use(running: Login) -> dict[str, int]:
    """Returns how many workers, unfinished jobs by state, and schedules that are due the service has."""
    from torchyard.client import Client

    with Client(running.url, running.token, certificate=running.certificate, patience=5) as client:
        workers, jobs = [*client.workers.list()], [*client.jobs.list(state=("queued", "running"))]
        schedules = sum(schedule.next_at is not None for schedule in client.schedules.list())
    states = {state: sum(job.state == state for job in jobs) for state in ("running", "queued")}
    return {"workers": len(workers), **states, "schedules": schedules}


def _stopped_use(running: Login | None) -> dict[str, int]:
    """Returns what stops with the service: nothing is known of one that does not answer."""
    from torchyard.contract.errors import TorchyardError

    if running is None:
        return {}
    try:
        use = _use(running)
    except TorchyardError:
        return {}
    return {"running job": use["running"], "schedule": use["schedules"]}


def _start_detached(data_dir: Path | None, options: list[str], *, as_json: bool) -> None:
    from torchyard.cli.up import own

    running = own.start(data_dir, options=tuple(options))
    root = (data_dir or own_data_dir()).absolute()
    output.show(
        {"url": running.url, "token": running.token, "data_dir": str(root)},
        [f"URL    {running.url}"],
        notes=[f"data   {root}", f"Running in the background. Stop it: {output.command()} down"],
        as_json=as_json,
    )


def _say_ready(service: Service, url: str, token: str, *, as_json: bool) -> None:
    """Prints where the service is, and says how it is used."""
    from torchyard.host import trust

    certificate = service.certificate
    fingerprint = None if certificate is None else trust.fingerprint(certificate)
    if as_json:
        found = {"url": url, "token": token, "data_dir": str(service.data.root), "fingerprint": fingerprint}
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        sys.stdout.write(f"URL    {url}\ntoken  {token}\n")
    sys.stdout.flush()
    if not as_json:
        _say_page(url, token, certificate)
    if fingerprint is not None:
        _say(f"certificate  SHA-256 {trust.shown(fingerprint)}")
    _say(f"data   {service.data.root}\nlogs   {service.data.logs}/{{api,worker,controller,redis}}.log")
    _say(f"Ready. In another terminal: {output.command()} run train.py. Ctrl-C stops the service.")
    file, trusted = shlex.quote(str(service.data.root / "token")), service.certificate_file
    login = f"{output.command()} login {url} --token-stdin < {file}"
    if trusted is not None:
        login = f"{output.command()} login {url} --certificate {shlex.quote(str(trusted))} --token-stdin < {file}"
    _say(f"To use it from other folders, run once: {login}")


def _say_page(url: str, token: str, certificate: str | None) -> None:
    """Says where the page is, with a code that logs in."""
    from torchyard.client import Client
    from torchyard.contract.errors import TorchyardError

    try:
        with Client(url, token, certificate=certificate, patience=5) as client:
            address = page.address(client)
    except TorchyardError as error:
        return _say(f"Cannot open the page: {error}")
    if address is None:
        return _say(page.NOT_BUILT)
    again = f" (logs in once, within a minute; for a new link: {output.command()} open)" if "#code=" in address else ""
    return _say(f"page   {address}{again}")


def demo(*, data_dir: DataDirOption = Path(".torchyard"), as_json: Json = False) -> None:
    """Train a small model on digits, and check its checkpoint.

    Uses the service on the data directory, or starts one for the demo.
    """
    from torchyard.cli.up.demo import run

    raise typer.Exit(run(data_dir, as_json=as_json))


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the service goes on without its terminal
        terminal.note(text)
