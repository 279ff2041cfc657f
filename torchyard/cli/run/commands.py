"""The command `run`: uploads the working directory and runs a program of it as a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from torchyard.cli.arguments import IdempotencyKey, Json, label_of
from torchyard.cli.sweeps import options as sweep_options
from torchyard.contract.team.roles import Visibility
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.cli.declared.options import Declared
    from torchyard.cli.run.program import Program
    from torchyard.cli.run.settings import Settings
    from torchyard.client.client import Client
    from torchyard.contract.spec.spec import ScriptSpec


def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROGRAM [ARGS]…", help="A Python file or an executable, with its arguments."),
    ] = None,
    *,
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module, as for python -m.")] = False,
    detach: Annotated[
        bool | None,
        typer.Option(
            "--detach/--follow", "-d/-f", show_default=False, help="Submit without following, or follow (default)."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The job's name. Default: the folder's, with a number if taken.")
    ] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="GPUs or CPU slots per node, one process each.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of a pool. Default: 1.")] = None,
    pool: Annotated[
        str | None, typer.Option(metavar="NAME", help="The pool to run in: see `torchyard workers ls`.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="WORKER", help="The worker to run on: see `torchyard workers ls`.")
    ] = None,
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Slurm account (pools).")] = None,
    qos: Annotated[str | None, typer.Option(metavar="NAME", help="Slurm QOS (pools).")] = None,
    constraint: Annotated[
        str | None, typer.Option(metavar="FEATURES", help="Slurm node features (pools): 'nvlink&ib'.")
    ] = None,
    reservation: Annotated[str | None, typer.Option(metavar="NAME", help="Slurm reservation (pools).")] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An accepted GPU model: H100, A100-80GB. Repeatable."),
    ] = None,
    cpus: Annotated[float | None, typer.Option(help="CPUs per host, for all processes together.")] = None,
    memory_gb: Annotated[
        float | None, typer.Option(metavar="GIB", help="GiB of memory per host, for all processes together.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An environment variable. Repeatable.")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="VARIABLE[=NAME]", help="An environment variable with the value of a secret. Repeatable."),
    ] = None,
    mount: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE=DATA",
            help="Mount data at $TORCHYARD_MOUNTS/NAME or ./PATH: a local folder (uploaded), data:NAME, "
            "bundle:sha256:… or file:///… on the worker. Repeatable.",
        ),
    ] = None,
    requirements: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Install packages from requirements.txt, pyproject.toml or `script`."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(metavar="PATH|NAME", help="A Python environment on the worker: see `torchyard envs`."),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Also upload files that git ignores: data, '*.npz'. Repeatable."),
    ] = None,
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Save written files as checkpoints: 'out/*.pt'. Repeatable."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Store written files: 'results/*'. Repeatable."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help=r"Find a metric in what it writes: 'loss[ =:]+(?P<value>\S+)'. Repeatable."
        ),
    ] = None,
    init_from: Annotated[
        str | None,
        typer.Option(metavar="JOB/REF", help="Initial weights: digits/best, SWEEP/best or model:NAME@VERSION."),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB[:ON]", help="Start after this job succeeded (or finished, or failed). Repeatable."),
    ] = None,
    launcher: Annotated[
        Literal["auto", "warm", "torchrun"] | None, typer.Option(help="How to start the processes.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="START:STEPS", help="Profile rank 0 for STEPS steps after step START: 20:5.")
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stop the job after this time, over all attempts: 90s, 15m, 24h, 7d."),
    ] = None,
    idle_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop the job when its GPUs were idle for this time: 30m.")
    ] = None,
    max_restarts: Annotated[
        int | None, typer.Option(min=0, help="Restarts after a failure, once it has made a step. Default: 2.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Priority, -100 to 100. Higher starts first.")] = None,
    preemptible: Annotated[
        bool | None,
        typer.Option(
            "--preemptible/--no-preemptible",
            show_default=False,
            help="Allow preemption: the job saves, stops and resumes later.",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(metavar="CRON", help="Submit it on a schedule, with the code of now: '0 2 * * *' (UTC)."),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label of the job. Repeatable.")
    ] = None,
    visibility: Annotated[Visibility | None, typer.Option(help="Who may read the job.")] = None,
    max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Refuse a larger upload. Default: 200MiB.")
    ] = None,
    trust_folder: Annotated[
        bool,
        typer.Option(
            "--trust-folder", help="Accept the secrets, mounts, weights and visibility set in torchyard.toml."
        ),
    ] = False,
    sweep: sweep_options.Sweep = None,
    array: sweep_options.Array = None,
    method: sweep_options.Method = None,
    trials: sweep_options.Trials = None,
    max_parallel: sweep_options.MaxParallel = None,
    monitor: sweep_options.Monitor = None,
    mode: sweep_options.Mode = None,
    halving: sweep_options.Halving = None,
    sweep_bool: sweep_options.SweepBool = None,
    sweep_style: sweep_options.SweepStyle = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run (of a sweep, each trial). Send nothing.")
    ] = False,
    idempotency_key: IdempotencyKey = None,
    config: Annotated[
        bool, typer.Option("--config", help="Show the settings in effect and their sources. Run nothing.")
    ] = False,
    init: Annotated[bool, typer.Option("--init", help="Write a commented torchyard.toml. Run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run a program from this folder as a job, and follow it.

    Uploads the folder first. PROGRAM is a file (train.py), a module (-m package.train) or, after --, a command (--
    accelerate launch train.py). Arguments after PROGRAM are its own. With --sweep or --array it submits a sweep: `lr`
    is the program's argument --lr, `devices` an option of this command, `env.NAME` a variable.
    """
    from torchyard.cli.run.program import absolute_python, find_program
    from torchyard.cli.run.settings import read_settings
    from torchyard.cli.run.trust import check
    from torchyard.cli.schedules import check_schedule

    _check_words(words, config=config, init=init)
    if schedule is not None:
        check_schedule(schedule, of_many=bool(sweep or array), follow=detach is False)
    if init:
        from torchyard.cli.run.config import write_template

        return write_template()
    of_slurm = {"pool": pool, "account": account, "qos": qos, "constraint": constraint, "reservation": reservation}
    resources = {"devices": devices, "nodes": nodes, "worker": on, "gpu": gpu, "cpus": cpus, "memory_gb": memory_gb}
    settings = read_settings(
        {
            "name": name,
            **resources,
            **of_slurm,
            "env": _pairs(env, "--env"),
            "secrets": _secrets(secret),
            "mounts": _pairs(mount, "--mount"),
            "requirements": requirements,
            "python": absolute_python(python),
            "include": include,
            "checkpoints": checkpoints,
            "keep": keep,
            "metrics": metric,
            "init_from": init_from,
            "after": after,
            "launcher": launcher,
            "profile": profile,
            "time_limit": time_limit,
            "idle_timeout": idle_timeout,
            "max_restarts": max_restarts,
            "priority": priority,
            "preemptible": preemptible,
            "labels": dict(label_of(text) for text in label or ()),
            "visibility": visibility,
            "max_size": max_size,
            "detach": detach,
        }
    )
    if config or not words:
        from torchyard.cli.run.config import show_settings

        return show_settings(settings, as_json=as_json)
    chosen = {"method": method, "trials": trials, "halving": halving, "max_parallel": max_parallel}
    written = {"sweep_bool": sweep_bool, "sweep_style": sweep_style}
    folder = Path.cwd()
    check(settings, folder, agrees=trust_folder)
    program = find_program(tuple(words), folder=folder, module=module, any_executable=_after_dashes(words))
    program, sweep_spec = _sweep_of(
        program, folder, sweep, array, {**chosen, "monitor": monitor, "mode": mode, **written}
    )
    if dry_run:
        from torchyard.cli.run.dry import print_plan

        return print_plan(program, settings, folder, sweep_spec, as_json=as_json)
    return _run(program, settings, folder, sweep_spec, schedule, as_json=as_json, idempotency_key=idempotency_key)


def _check_words(words: list[str] | None, *, config: bool, init: bool) -> None:
    if not words and not (config or init):
        raise typer.BadParameter("give a program: a Python file or an executable, with its arguments")
    if words and (config or init):
        raise typer.BadParameter(f"--{'config' if config else 'init'} does not run a program: omit {words[0]}")


def _run(
    program: Program,
    settings: Settings,
    folder: Path,
    sweep: dict[str, Any] | None,
    schedule: str | None,
    *,
    as_json: bool,
    idempotency_key: str | None,
) -> None:
    """Uploads the folder and submits the job, the sweep or the schedule of it. Starts a server where none is known."""
    from torchyard.cli.run.server import connect_or_start

    with connect_or_start() as client:
        client.me()  # whoever cannot be reached, or does not know the token, says so before anything is packed
        spec = _uploaded(client, program, settings, folder, repeatable=idempotency_key is not None)
        if schedule is not None:
            from torchyard.cli.schedules import add

            return add(client, spec, schedule, as_json=as_json, idempotency_key=idempotency_key)
        return _submit(client, spec, sweep, settings, as_json=as_json, idempotency_key=idempotency_key)


def _sweep_of(
    program: Program, folder: Path, sweep: list[str] | None, array: int | None, more: dict[str, Any]
) -> tuple[Program, dict[str, Any] | None]:
    """Returns the program with what varies in its place, and the sweep without its job; None if it is none.

    Says what varies.
    """

    def declared() -> Declared:
        from torchyard.cli.declared.reading import declared as read

        return read(folder, program.source(folder))

    job = {"trainer": "script", "config": {**program.config}}
    asked = sweep_options.sweep_of(job, sweep=sweep, array=array, more=more, declared=declared)
    if asked is None:
        return program, None
    from torchyard.cli.sweeps.submitting import announced

    args = tuple(asked.spec["job"]["config"]["args"])
    return replace(program, args=args), announced(asked.spec, asked.by)


def _submit(
    client: Client,
    spec: ScriptSpec,
    sweep: dict[str, Any] | None,
    settings: Settings,
    *,
    as_json: bool,
    idempotency_key: str | None,
) -> None:
    """Submits the job, or the sweep of it, and follows it if that is wanted."""
    detach = settings["detach"]
    if sweep is not None:
        from torchyard.cli.sweeps.submitting import submit_sweep

        whole = {**sweep, "name": spec.name, "job": spec.model_dump(mode="json")}
        return submit_sweep(client, whole, detach=detach, as_json=as_json, idempotency_key=idempotency_key)
    from torchyard.cli.submission import accepted

    numbered = settings["name"] is None and idempotency_key is None  # with a key, a repetition sends the same spec
    job = client.submit(spec, idempotency_key=idempotency_key, forecast=not as_json, numbered=numbered)
    return accepted(client, job.view, follow=not detach, as_json=as_json)


def _uploaded(client: Client, program: Program, settings: Settings, folder: Path, *, repeatable: bool) -> ScriptSpec:
    """Uploads the folder, says what will run, and returns the job's spec."""
    from torchyard.cli.run.spec import checked, packed_program, plan
    from torchyard.cli.run.upload import push, upload
    from torchyard.client.blocking import ask
    from torchyard.client.references import with_ids

    with packed_program(program, settings, folder, repeatable=repeatable) as packed:
        (exact,) = ask(client, with_ids, [packed.spec])
        spec = checked(exact)
        for line in plan(spec, program, packed.code, server=client.server.url):
            terminal.note(line)
        for place, bundle in packed.mounts.items():
            push(client, bundle, place=place)
        upload(client, packed.code)
    return spec


def _after_dashes(words: list[str]) -> bool:
    """Whether `--` was before the program. The parser drops it."""
    return len(sys.argv) > len(words) and sys.argv[-len(words) - 1] == "--"


def _pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    found = [text.partition("=") for text in texts or ()]
    for name, mark, _ in found:
        if not (name and mark):
            raise typer.BadParameter(f"{name!r} is not complete: write {option} NAME=…")
    return {name: value for name, _, value in found}


def _secrets(texts: list[str] | None) -> dict[str, str]:
    return {name: secret or name for name, _, secret in (text.partition("=") for text in texts or ())}
