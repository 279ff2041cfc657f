"""Commands of Slurm that a test breaks for a while: they stand in front of the real ones on the PATH of the worker."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
import shutil

_COMMANDS = ("squeue", "sbatch")
_SCRIPT = """\
#!/bin/sh
case "$(cat "{mode}" 2>/dev/null)" in
    "is empty") exit 0 ;;
    "is slow") sleep 35; exec {real} "$@" ;;
    "fails") echo "slurm_load_jobs error: Socket timed out on send/recv operation" >&2; exit 1 ;;
    "answers nothing") {real} "$@" >/dev/null; echo "Socket timed out on send/recv operation" >&2; exit 1 ;;
    "is refused") echo "Batch job submission failed: Unable to contact slurm controller" >&2; exit 1 ;;
    *) exec {real} "$@" ;;
esac
"""


class Wrappers:
    """Made in `folder`, which the worker must have first on its PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for command in _COMMANDS:
            real = shutil.which(command)
            assert real is not None
            wrapper = folder / command
            wrapper.write_text(_SCRIPT.format(mode=self._mode(command), real=real))
            wrapper.chmod(0o755)

    @contextmanager
    def broken(self, command: str, how: str) -> Generator[None]:
        """Breaks a command in one of the ways of the script."""
        self._mode(command).write_text(how)
        try:
            yield
        finally:
            self._mode(command).unlink()

    def _mode(self, command: str) -> Path:
        return self.folder / f"{command}.mode"
