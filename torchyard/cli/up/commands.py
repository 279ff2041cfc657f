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
    typer.Option("--data-dir", help="Of the service. Default: .torchyard here if one runs on it, else your own."),
]
DataDirOption = Annotated[Path, typer.Option("--data-dir", help="Where everything is kept.")]


def up(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, envvar="TORCHYARD_PORT", help="Port to listen on; 0 takes a free one. Default: 8000."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Where everything is kept. Default: .torchyard here; your own with --detach."),
    ] = None,
    cpu_slots: Annotated[
        int | None, typer.Option(min=0, help="CPU slots to offer where there is no GPU.", show_default=False)
    ] = None,
    allow_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR[:rw]",
            help="A folder below which jobs may name file:// data and code; with :rw they may write it. Repeatable.",
        ),
    ] = None,
    database: Annotated[str | None, typer.Option(metavar="URL", help="SQL database, instead of SQLite.")] = None,
    redis: Annotated[str | None, typer.Option(metavar="URL", help="Redis, instead of an embedded one.")] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Speak HTTPS, with a certificate of its own unless one is given.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="The certificate, PEM, and those of its issuers.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate, PEM.")
    ] = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", "-d", help="Start it in the background, on a free port and your own data directory by default."
        ),
    ] = False,
    end_when_idle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End after so long without a job, a schedule and a request: 1h."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check that it can start here, and start nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the whole service on this machine.

    It runs in the foreground, until Ctrl-C.

    Starts the API, a worker, a controller, the database and the queue, and starts again what dies.
    Ctrl-C stops it cleanly.
    """
    from torchyard.cli.up.service import Options, Service
    from torchyard.host.listening import is_loopback
    from torchyard.host.tls import given

    own_tls = given(tls_cert, tls_key)
    tls = tls or own_tls is not None
    if not (tls or is_loopback(host)):
        _say(
            f"Warning: {host} is reachable from the network, and tokens, code, data and logs travel there unencrypted;"
            " whoever has the token can run code here. --tls encrypts."
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
    """Stop the service that `up` has started on this machine.

    Running jobs are asked to save, and go back to the queue: the next start continues them.
    """
    from torchyard.cli.up import own

    root = own.found_dir(data_dir)
    use = {} if as_json else _stopped_use(own.find(root))
    stopped = own.stop(root)
    output.show(
        {"data_dir": str(root), "stopped": stopped},
        [f"stopped {root}" if stopped else f"no service runs on {root}"],
        as_json=as_json,
    )
    if stopped and (counts := [output.count(number, noun) for noun, number in use.items() if number]):
        _say(f"Stopped with it: {', '.join(counts)}. After the next start they go on.")


def status(*, data_dir: FoundDirOption = None, as_json: Json = False) -> None:
    """Show whether a service runs on this machine, and what it does.

    Exits with 1 if none runs. For a job, see `torchyard show`.
    """
    from torchyard.cli.up import own

    root = own.found_dir(data_dir)
    running = own.find(root)
    if running is None:
        output.show(
            {"data_dir": str(root), "url": None},
            [f"no service runs on {root}. Start one: {output.command()} up --detach"],
            as_json=as_json,
        )
        raise typer.Exit(1)
    use = _use(running)
    found = {"data_dir": str(root), "url": running.url, **use}
    lines = [f"{name.replace('_', ' '):<10}{value}" for name, value in found.items()]
    if use["schedules"]:
        lines.append("Its schedules keep it running, also without use.")
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
        notes=[f"data   {root}", f"It runs in the background: `{output.command()} down` ends it."],
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
    _say(f"Ready. In another terminal: {output.command()} run train.py, or submit FILE -f. Ctrl-C stops.")
    file, trusted = shlex.quote(str(service.data.root / "token")), service.certificate_file
    login = f"{output.command()} login {url} --token-stdin < {file}"
    if trusted is not None:
        login = f"{output.command()} login {url} --certificate {shlex.quote(str(trusted))} --token-stdin < {file}"
    _say(f"To use it from other folders, once: {login}")


def _say_page(url: str, token: str, certificate: str | None) -> None:
    """Says where the page is, with a code that logs in."""
    from torchyard.client import Client
    from torchyard.contract.errors import TorchyardError

    try:
        with Client(url, token, certificate=certificate, patience=5) as client:
            address = page.address(client)
    except TorchyardError as error:
        return _say(f"The page cannot be opened: {error}")
    if address is None:
        return _say(page.NOT_BUILT)
    again = f" (it logs in once, within a minute; then: {output.command()} open)" if "#code=" in address else ""
    return _say(f"page   {address}{again}")


def demo(*, data_dir: DataDirOption = Path(".torchyard"), as_json: Json = False) -> None:
    """Train on real digits, and check what comes out.

    Uses the service that runs on the data directory, or starts one for as long as it takes.
    """
    from torchyard.cli.up.demo import run

    raise typer.Exit(run(data_dir, as_json=as_json))


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the service goes on without its terminal
        terminal.note(text)
