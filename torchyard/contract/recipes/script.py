"""The configuration of `script`."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from torchyard.contract.attempts.keeping import require_inside
from torchyard.contract.bounds import MOST_CHECKPOINT_PATTERNS, MOST_DIFF_BYTES, MOST_LEFT_OUT, PYTHON
from torchyard.contract.bundles import mounting
from torchyard.contract.bundles.mounting import MOST_MOUNTS, MountPlace
from torchyard.contract.bundles.names import digest_in
from torchyard.contract.wire.schema import BundleOrFile, Schema
from torchyard.contract.wire.wording import allowing

SCRIPT_METADATA = "script"
"""The requirements are in the metadata of the entrypoint (PEP 723)."""
MOST_PATH = 500
"""Characters of a path that was left out of the code."""

_PATH = r"[A-Za-z0-9_][A-Za-z0-9_.+\-/]*"
_NAME = "[A-Za-z_][A-Za-z0-9_]*"

_INSIDE = "of letters, digits and `_.+-/`, of which the first is a letter, a digit or `_`"
_Pattern = Annotated[str, Field(min_length=1, max_length=500)]

_LeftOut = Annotated[str, Field(min_length=1, max_length=MOST_PATH)]
_COMMIT = allowing(r"^([0-9a-f]{40}|[0-9a-f]{64})$", "the 40 or 64 hexadecimal digits of a commit")
_ENTRYPOINT = allowing(rf"^{_PATH}\.py$", f"the path of a .py file below the code folder, {_INSIDE}")
_MODULE = allowing(rf"^{_NAME}(\.{_NAME})*$", "the name of a module, such as package.train")
_COMMAND = allowing(rf"^(\./)?{_PATH}$", f"the path of a program below the code folder, {_INSIDE}")
_REQUIREMENTS = allowing(rf"^{_PATH}$", f"a path below the code folder, {_INSIDE}")
_PROGRAM = ("entrypoint", "module", "command")


class Git(Schema):
    """The git state of the code. The service shows it and does not use it."""

    commit: Annotated[str, Field(pattern=_COMMIT, description="id of the commit")]
    branch: Annotated[str, Field(max_length=500)] | None = Field(
        default=None, description="name of the branch; null if none is checked out"
    )
    dirty: bool = Field(default=False, description="whether the code has uncommitted changes")
    diff: str = Field(
        default="", max_length=MOST_DIFF_BYTES, description=f"the uncommitted changes, up to {MOST_DIFF_BYTES} bytes"
    )

    @field_validator("diff")
    @classmethod
    def _diff_is_small(cls, diff: str) -> str:
        if len(diff.encode(errors="replace")) > MOST_DIFF_BYTES:
            raise ValueError(f"must have at most {MOST_DIFF_BYTES} bytes")
        return diff


class Script(Schema):
    """Your own program: one process for each device, or a command that starts its own processes."""

    code: BundleOrFile = Field(
        description="`bundle:sha256:…`: a bundle of yours; or `file:///…`: a folder inside a folder that the worker"
        " allows"
    )
    entrypoint: Annotated[str, Field(pattern=_ENTRYPOINT, max_length=503)] | None = Field(
        default=None,
        exclude_if=lambda entrypoint: entrypoint is None,  # one of three is given
        description="path of the program in the code folder; default: train.py, unless `module` or `command` is set",
    )
    module: Annotated[str, Field(pattern=_MODULE, max_length=500)] | None = Field(
        default=None,
        exclude_if=lambda module: module is None,
        description="the program as a module of the code folder or the environment, as for `python -m`",
    )
    command: Annotated[str, Field(pattern=_COMMAND, max_length=502)] | None = Field(
        default=None,
        exclude_if=lambda command: command is None,
        description="an executable in the code folder or on the environment's PATH. It starts once, and starts its "
        "own processes for the devices",
    )
    args: Annotated[list[Annotated[str, Field(max_length=10_000)]], Field(max_length=1000)] = Field(
        default=[],
        description="command-line arguments of the program. `$TORCHYARD_MOUNTS`, `$TORCHYARD_RUN_DIR`, "
        "`$TORCHYARD_CHECKPOINT_DIR`, `$TORCHYARD_RESUME_FROM` and `$TORCHYARD_INIT_FROM` are replaced "
        "by these paths, also in braces; every other `$` stays, and so does `$$TORCHYARD_…`",
    )
    mounts: Annotated[
        dict[MountPlace, BundleOrFile],
        Field(max_length=MOST_MOUNTS, json_schema_extra={"additionalProperties": False}),
        BeforeValidator(mounting.canonical),
    ] = Field(
        default={},
        exclude_if=lambda mounts: not mounts,
        description="more bundles or `file:///…` URLs. The key is a name, read at $TORCHYARD_MOUNTS/NAME, or a path"
        " in the working folder, such as ./data or data/mnist",
    )
    requirements: Annotated[str, Field(pattern=_REQUIREMENTS, max_length=500)] | None = Field(
        default=None,
        exclude_if=lambda requirements: requirements is None,
        description="packages to install in addition to the worker's: the path of a `requirements.txt` or "
        "`pyproject.toml` (with or without `uv.lock`) in the code folder, or `script` for the inline "
        "metadata of the entrypoint (PEP 723). null: only the worker's packages",
    )
    python: Annotated[str, Field(pattern=PYTHON)] | None = Field(
        default=None,
        exclude_if=lambda python: python is None,
        description="the Python environment of the program (venv, conda, uv or pixi): the name or path of one that "
        "a worker offers (`environments` in GET /v1/workers), or a path inside a folder that the worker"
        " allows. null: the worker's environment",
    )
    checkpoints: Annotated[list[_Pattern], Field(max_length=MOST_CHECKPOINT_PATTERNS)] = Field(
        default=[],
        exclude_if=lambda patterns: not patterns,
        description="patterns of files and folders in the working folder to save as checkpoints once they are complete",
    )
    left_out: Annotated[list[_LeftOut], Field(max_length=MOST_LEFT_OUT)] = Field(
        default=[],
        exclude_if=lambda paths: not paths,
        description="ignored paths that were not uploaded; the advice names one that the program looks for",
    )
    git: Git | None = Field(
        default=None, exclude_if=lambda git: git is None, description="the git state of the code, for information"
    )

    @field_validator("mounts")
    @classmethod
    def _paths_need_a_folder_of_the_job(cls, mounts: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        paths = [place for place in mounts if mounting.is_path(place)]
        if paths and digest_in(info.data.get("code", "")) is None:
            raise ValueError(f"{paths[0]}: code at file:///… is used where it is: mount it by a name, or push the code")
        return mounts

    @model_validator(mode="before")
    @classmethod
    def _train_py_is_the_default(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and all(name not in raw for name in _PROGRAM):
            return raw | {"entrypoint": "train.py"}
        return raw

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if sum(value is not None for value in (self.entrypoint, self.module, self.command)) != 1:
            raise ValueError("give exactly one of entrypoint, module and command")
        if self.requirements == SCRIPT_METADATA and self.entrypoint is None:
            raise ValueError("requirements: script is the metadata of an entrypoint: give one, or name a file")
        if self.requirements is not None and self.python is not None:
            raise ValueError("give python or requirements, not both: packages are installed for the worker's Python")
        if ".." in (self.python or "").split("/"):
            raise ValueError("python must be a path without `..`")
        for name in ("entrypoint", "command", "requirements"):
            if ".." in (getattr(self, name) or "").split("/"):
                raise ValueError(f"{name} must be inside the code folder")
        return self

    @field_validator("checkpoints")
    @classmethod
    def _patterns_stay_inside(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            require_inside(pattern)
        return patterns
