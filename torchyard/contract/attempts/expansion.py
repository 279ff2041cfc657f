"""The folders of an attempt in a job's arguments and variables: `$TORCHYARD_MOUNTS/data` becomes their path."""

from collections.abc import Mapping
import re

from torchyard.contract.attempts.rundir import Env
from torchyard.contract.errors import ConfigError

FOLDERS = frozenset(
    name.value for name in (Env.RUN_DIR, Env.CHECKPOINT_DIR, Env.MOUNTS, Env.RESUME_FROM, Env.INIT_FROM)
)
"""The variables that are expanded. Each names a folder, and none has what is secret."""
MOST_EXPANDED_BYTES = 131_000
"""Bytes of a text that is expanded: the kernel starts no program with a longer argument."""

_MAY_BE_ABSENT = frozenset((Env.RESUME_FROM.value, Env.INIT_FROM.value))
"""Variables that a fresh start has not: they become empty, as in a shell."""
_REFERENCE = re.compile(r"\$(\$?)(?:(TORCHYARD_[A-Za-z0-9_]+)|\{(TORCHYARD_[A-Z_]+)\})")


def expanded(text: str, folders: Mapping[str, str]) -> str:
    """Returns the text with the paths of the attempt's `folders` in place of their names.

    `$$TORCHYARD_…` becomes `$TORCHYARD_…`. Every other dollar stays, and so do other names. Raises ConfigError if the
    text becomes too long.
    """
    if "$" not in text:
        return text

    def replaced(found: re.Match[str]) -> str:
        name = found[2] or found[3]
        if name not in FOLDERS:
            return found[0]
        if found[1]:
            return found[0][1:]
        return folders.get(name, "" if name in _MAY_BE_ABSENT else found[0])

    made = _REFERENCE.sub(replaced, text)
    if made != text and len(made.encode(errors="replace")) > MOST_EXPANDED_BYTES:
        raise ConfigError(f"{text[:100]!r} has more than {MOST_EXPANDED_BYTES} bytes with the folders that it names")
    return made
