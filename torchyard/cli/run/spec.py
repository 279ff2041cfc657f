"""Makes the job spec of a packed folder, and the lines that say what will run."""

from pathlib import Path
import re
import shlex
from typing import Any

from torchyard.cli import output
from torchyard.cli.run.program import Program
from torchyard.cli.run.settings import Settings
from torchyard.client.packing import Bundle, git
from torchyard.client.packing.listing import IGNORE_FILE
from torchyard.contract import terminal
from torchyard.contract.errors import ConfigError, InvalidSpec
from torchyard.contract.spec import ScriptSpec, parse_spec

_MOST_SHOWN = 5


def job_spec(program: Program, settings: Settings, bundle: Bundle, *, folder: Path) -> ScriptSpec:
    """Returns the spec of the job. Raises ConfigError, and InvalidSpec, which names each wrong field."""
    requirements = settings["requirements"]
    if requirements not in (None, "script") and requirements not in bundle.files:
        raise ConfigError(f"{requirements}, which has the requirements, is not among the files of {folder}")
    origin = git.origin(folder, bundle.files)
    config = {
        "code": bundle.url,
        **program.config,
        "mounts": settings["mounts"],
        "requirements": requirements,
        "checkpoints": settings["checkpoints"],
        "git": None if origin is None else origin.model_dump(),
    }
    secrets = {name: {"secret": secret} for name, secret in settings["secrets"].items()}
    plain = {key: settings[key] for key in ("time_limit", "max_restarts", "priority", "launcher", "visibility")}
    return _checked(
        {
            "trainer": "script",
            "name": settings["name"] or _name_of(folder),
            "resources": {"devices_per_node": settings["devices"]},
            "env": {**settings["env"], **secrets},
            "config": config,
            **{key: value for key, value in plain.items() if value is not None},
        }
    )


def plan(spec: ScriptSpec, program: Program, bundle: Bundle) -> list[str]:
    """Returns the lines that say what will run, and what of the folder is sent."""
    rows = [("program", shlex.join(_words(program))), ("devices", str(spec.resources.devices_per_node))]
    rows += [("launcher", "none: the command starts its own processes" if spec.config.command else spec.launcher)]
    rows += [("env", ", ".join(spec.plain_env)), ("secrets", ", ".join(spec.secrets.values()))]
    rows += [("mounts", ", ".join(f"{name} {url[:40]}" for name, url in spec.config.mounts.items()))]
    rows += [("git", output.git(spec.config.git) if spec.config.git is not None else "")]
    rows += [("code", f"{output.count(len(bundle.files), 'file')}, {terminal.size(bundle.size)}")]
    large = sorted(bundle.large.items(), key=lambda item: -item[1])
    rows += [("large", f"{name} {terminal.size(size)}") for name, size in large[:_MOST_SHOWN]]
    rows += [("left out", f"{name}: {why}") for name, why in [*bundle.skipped.items()][:_MOST_SHOWN]]
    if large:
        rows.append(("", f"({IGNORE_FILE} leaves files out, and `{output.command()} data push DIR` sends data once)"))
    for label, found in (("large", bundle.large), ("left out", bundle.skipped)):
        if len(found) > _MOST_SHOWN:
            rows.append((label, f"and {len(found) - _MOST_SHOWN} more"))
    return [f"{label:<11}{terminal.plain(text)}" for label, text in rows if text]


def _words(program: Program) -> list[str]:
    return [*(("-m",) if program.key == "module" else ()), program.value, *program.args]


def _name_of(folder: Path) -> str:
    """Returns the folder's name with `-` for each character that a job's name cannot have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).lstrip("._-")[:100] or "run"


def _checked(spec: dict[str, Any]) -> ScriptSpec:
    try:
        found = parse_spec(spec)
    except InvalidSpec as error:
        lines = [error.message, *(f"  {item.field}: {item.message}" for item in error.errors)]
        raise InvalidSpec("\n".join(lines), errors=error.errors) from None
    assert isinstance(found, ScriptSpec)
    return found
