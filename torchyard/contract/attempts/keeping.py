"""Which files of its working folder a job keeps, or a request stores: paths and patterns."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from torchyard.contract.attempts.rundir import FROM_TMP


def require_inside(pattern: str) -> None:
    """Raises ValueError if a pattern names what is not below the working folder."""
    first, _, below = pattern.lstrip("/").partition("/")
    if pattern.startswith("/") and first == "tmp":
        own = f"{FROM_TMP}/{below}" if below else FROM_TMP
        raise ValueError(
            f"{pattern!r}: what is in /tmp is in {FROM_TMP}/ of the working folder once an attempt has ended: {own!r}"
            " is kept then. To have it stored while the job runs, write it to the working folder"
        )
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ValueError(f"{pattern!r} must be inside the working folder: relative, without `..`")


def _inside(pattern: str) -> str:
    require_inside(pattern)
    if not set(pattern.split("/")) - {"", "."}:
        raise ValueError(f"{pattern!r} names no file; `**` means all files that the program writes")
    return pattern


KeptPattern = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_inside)]
"""A path or a pattern of files and folders below the working folder."""


def used_in_place(spec: Mapping[str, Any]) -> str:
    """Says where the patterns of a spec with code of the host count; empty if it has none, or another code."""
    config = spec.get("config", {})
    code = str(config.get("code", ""))
    if not code.startswith("file:") or not (spec.get("keep") or config.get("checkpoints")):
        return ""
    return f"{code} is used in place: patterns count below TORCHYARD_RUN_DIR/artifacts alone"
