"""The variables of a job's ranks that its spec sets."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from torchyard.contract.rundir import PYTHONPATH
from torchyard.contract.schema import Schema
from torchyard.contract.wording import allowing

VARIABLE_NAME = allowing(
    r"^[A-Za-z_][A-Za-z0-9_]{0,99}$", "1 to 100 letters, digits and `_`, of which the first is no digit"
)
MOST_SECRETS_BYTES = 1 << 16
"""Bytes of the values of all secrets that a job names: whatever it writes is searched for each of them."""
_KEY = allowing(r"^[A-Za-z_][A-Za-z0-9_]{0,199}$", "1 to 200 letters, digits and `_`, of which the first is no digit")
_VARIABLE = re.compile(_KEY)
_RESERVED = re.compile(
    r"TORCHYARD_.*|TORCHELASTIC_.*|LD_.*|MASTER_.*|GROUP_.*|ROLE_.*|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER"
    r"|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|PYTHONHOME|PYTHONSTARTUP|PYTHONUNBUFFERED|PYTHONSAFEPATH"
)


def is_reserved(name: str) -> bool:
    """Returns whether the service alone sets a variable of this name."""
    return _RESERVED.fullmatch(name) is not None or name == PYTHONPATH


class SecretRef(Schema):
    """The value of a variable: a secret of the job's owner."""

    secret: Annotated[str, Field(pattern=VARIABLE_NAME)]


def _are_the_users(env: dict[str, Any]) -> dict[str, Any]:
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name[:200]!r} is no name of an environment variable")
        if _RESERVED.fullmatch(name):
            raise ValueError(f"{name} is set by the service and cannot be chosen")
        if name == PYTHONPATH:
            _check_folders(value)
    return env


def _check_folders(value: Any) -> None:
    folders = value.split(":") if isinstance(value, str) else [""]
    if any(not folder or folder.startswith("/") or ".." in folder.split("/") for folder in folders):
        raise ValueError(
            "PYTHONPATH may name folders of the code, with `:` between them: relative, without `..`, such as `.:src`"
        )


Env = Annotated[
    dict[str, Annotated[str, Field(max_length=32_768)] | SecretRef],
    Field(
        max_length=256,
        description="variables of the ranks; a value is a text, or `{secret: NAME}`",
        json_schema_extra={"propertyNames": {"pattern": _KEY}},
    ),
    AfterValidator(_are_the_users),
]
