"""Makes the job spec of the folder by the settings, and the lines that say what will run."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
import shlex
from typing import Any

from torchyard.cli import output
from torchyard.cli.run.program import SHELLS, Program
from torchyard.cli.run.settings import Settings
from torchyard.cli.run.upload import MOST_PUSHED, MOST_SHOWN, left_out, packing
from torchyard.client.core.launching import PackedJob, packed_job
from torchyard.client.packing.bundle import Bundle
from torchyard.client.packing.rules import IGNORE_FILE
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.resources import Resources, SlurmOptions
from torchyard.contract.spec.spec import ScriptSpec, parse_spec
from torchyard.host import terminal

_SAME = (
    "name",
    "time_limit",
    "idle_timeout",
    "max_restarts",
    "priority",
    "preemptible",
    "launcher",
    "visibility",
    "labels",
    "keep",
)
"""The settings that are keys of the spec as they are."""


@contextmanager
def packed_program(
    program: Program, settings: Settings, folder: Path, *, offline: bool = False, repeatable: bool = False
) -> Generator[PackedJob]:
    """Packs the folder for the block, and the mounts that are folders: with the spec that the settings say.

    `offline` leaves out what a server is asked for: mounts and weights. Raises as `packed_job` does.
    """
    config = {key: settings[key] for key in ("requirements", "python", "checkpoints")}
    job = packed_job(
        folder,
        {**program.config, **config, "mounts": {} if offline else settings["mounts"]},
        {**_keys(settings), "init_from": None if offline else settings["init_from"]},
        needed=program.file,
        max_size=settings["max_size"],
        max_mount_size=max(settings["max_size"], MOST_PUSHED),
        include=settings["include"],
        repeatable=repeatable,
    )
    with ExitStack() as opened:
        with packing():
            packed = opened.enter_context(job)
        yield packed


def checked(spec: Mapping[str, Any]) -> ScriptSpec:
    """Returns the spec as a record. Raises InvalidSpec, which names each wrong field."""
    try:
        found = parse_spec(spec)
    except InvalidSpec as error:
        lines = [error.message, *(f"  {item.field}: {item.message}" for item in error.errors)]
        raise InvalidSpec("\n".join(lines), errors=error.errors) from None
    assert isinstance(found, ScriptSpec)
    return found


def plan(spec: ScriptSpec, program: Program, bundle: Bundle, *, server: str) -> list[str]:
    """Returns the lines that say what will run on which server, and what of the folder is sent."""
    rows = [
        ("server", server),
        ("program", shlex.join(_words(program))),
        ("devices", _devices(spec.resources)),
        ("pool", _of_pool(spec)),
        ("worker", spec.resources.worker or ""),
    ]
    rows += [("gpu", " or ".join(spec.resources.gpu or ())), ("host", _of_host(spec.resources))]
    rows += [("python", spec.config.python or "")]
    rows += [("launcher", "none; the command starts its own processes" if spec.config.command else spec.launcher)]
    rows += [("restarts", _restarts(spec.max_restarts))]
    rows += [("env", ", ".join(spec.plain_env)), ("secrets", ", ".join(spec.secrets.values()))]
    rows += [("mounts", ", ".join(f"{name} {url[:40]}" for name, url in spec.config.mounts.items()))]
    rows += [("weights", spec.init_from or "")]
    rows += [("after", ", ".join(output.awaited(each.job, each.on) for each in spec.after))]
    rows += [("git", output.git(spec.config.git) if spec.config.git is not None else "")]
    rows += [("code", f"{output.count(len(bundle.files), 'file')}, {terminal.size(bundle.size)}")]
    large = sorted(bundle.large.items(), key=lambda item: -item[1])
    rows += [("large", f"{name} {terminal.size(size)}") for name, size in large[:MOST_SHOWN]]
    if len(large) > MOST_SHOWN:
        rows.append(("large", f"and {len(large) - MOST_SHOWN} more"))
    if large:
        rows.append(
            (
                "",
                f"(to leave files out, list them in {IGNORE_FILE}; to upload data once, use `{output.command()} "
                "data push DIR`)",
            )
        )
    rows += [("left out", line) for line in left_out(bundle)]
    lines = [f"{label:<11}{terminal.plain(text)}" for label, text in rows if text]
    if program.file is None and program.value not in SHELLS:
        lines.append(f"{terminal.plain(program.value)} comes from {_environment(spec)}.")
    return lines


def _keys(settings: Settings) -> dict[str, Any]:
    """Returns what the settings say of the job besides its `config` and `init_from`."""
    of_slurm = {key: settings[key] for key in SlurmOptions.model_fields if settings[key] is not None}
    secrets = {name: {"secret": secret} for name, secret in settings["secrets"].items()}
    keys = {
        **{key: settings[key] for key in _SAME},
        "resources": _resources(settings),
        "slurm": of_slurm or None,
        "after": [_after(text) for text in settings["after"]] or None,
        "profile": None if settings["profile"] is None else _profile(settings["profile"]),
        "env": {**settings["env"], **secrets},
        "metrics": {"patterns": settings["metrics"]},
    }
    return {key: value for key, value in keys.items() if value is not None}


def _environment(spec: ScriptSpec) -> str:
    """Names where a program is installed that is not in the folder."""
    if spec.config.python is not None:
        return f"the environment {terminal.plain(spec.config.python)}"
    if spec.config.requirements is not None:
        return f"{terminal.plain(spec.config.requirements)} or the worker's environment"
    return "the worker's environment"


def _after(text: str) -> dict[str, str]:
    job, _, on = text.partition(":")
    return {"job": job, "on": on or "succeeded"}


def _profile(text: str) -> dict[str, int]:
    start, _, steps = text.partition(":")
    return {"start": int(start), "steps": int(steps)}


def _resources(settings: Settings) -> dict[str, Any]:
    asked = {key: settings[key] for key in ("pool", "worker", "gpu", "cpus", "memory_gb") if settings[key] is not None}
    return {"nodes": settings["nodes"], "devices_per_node": settings["devices"], **asked}


def _restarts(most: int) -> str:
    if not most:
        return "0; allow some with --max-restarts N"
    return f"{most} at most, if it fails after its first step; none with --max-restarts 0"


def _devices(resources: Resources) -> str:
    count = str(resources.devices_per_node)
    return count if resources.nodes == 1 else f"{count} on each of {resources.nodes} nodes"


def _of_pool(spec: ScriptSpec) -> str:
    asked = spec.slurm.model_dump(exclude_none=True) if spec.slurm is not None else {}
    return ", ".join([spec.resources.pool or "", *(f"{name} {value}" for name, value in asked.items())]).lstrip(", ")


def _of_host(resources: Resources) -> str:
    cpus = [] if resources.cpus is None else [f"{resources.cpus:g} CPUs"]
    return ", ".join([*cpus, *([] if resources.memory_gb is None else [f"{resources.memory_gb:g} GiB of memory"])])


def _words(program: Program) -> list[str]:
    return [*(("-m",) if program.key == "module" else ()), program.value, *program.args]
