"""The keys of a job spec that `--sweep` names in short."""

from collections.abc import Iterator
from typing import Any, get_args

import typer

from torchyard.contract.spec.spec import CONFIGS, RecipeSpec, ScriptSpec
from torchyard.contract.sweeps.arguments import ARGUMENT
from torchyard.contract.wire.schema import Schema
from torchyard.contract.wire.wording import nearest

_SETTINGS = {
    "devices": "resources.devices_per_node",
    **{name: f"resources.{name}" for name in ("nodes", "pool", "worker", "gpu", "cpus", "memory_gb")},
    **{name: f"slurm.{name}" for name in ("account", "qos", "constraint", "reservation")},
}
"""Settings of `run` whose keys in a job spec are others."""


def whole_key(key: str, *, trainer: str, hydra: bool = False) -> str:
    """Returns the path in a job spec that a key names: itself where it begins with a key of the spec.

    Of a recipe `lr` and `model.name` are what ends so in `config`; of a script a setting of `run`, else an argument
    of the program, `--lr`. `hydra`: any key is an argument, but for `env.NAME` and `resources.NAME`, as keys
    of Hydra look like those of a spec. Raises BadParameter.
    """
    first = key.partition(".")[0]
    if trainer == "script" and hydra and first not in {"args", "env", "resources"}:
        return _argument(key)
    if trainer == "script":
        return key if first in {"args", *ScriptSpec.model_fields} else _SETTINGS.get(key) or _argument(key)
    if trainer not in CONFIGS or first in RecipeSpec.model_fields:
        return key  # the server says what is wrong with it
    return _in_config(key, trainer)


def _argument(key: str) -> str:
    return f"{ARGUMENT}{key.removeprefix('--')}"


def _in_config(key: str, trainer: str) -> str:
    paths = [*_paths(CONFIGS[trainer], "config")]
    found = [path for path in paths if path.endswith(f".{key}")]
    if len(found) > 1:
        raise typer.BadParameter(f"{key} is ambiguous: it may be {', '.join(found[:-1])} or {found[-1]}")
    if not found:
        near = nearest(key, {path.rpartition(".")[2] for path in paths})
        meant = f"; did you mean {near}?" if near else f"; `torchyard validate` shows the keys of {trainer}"
        raise typer.BadParameter(f"unknown key {key} of {trainer}{meant}")
    return found[0]


def _paths(model: type[Schema], before: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        path = f"{before}.{name}"
        yield path
        for inner in _models(field.annotation):
            yield from _paths(inner, path)


def _models(annotation: Any) -> list[type[Schema]]:
    """Returns the models that a value may be."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, Schema) else []
    return [model for inner in get_args(annotation) for model in _models(inner)]
