"""What a rank gets: its rank and device, the job's configuration, and the checkpoint to resume from."""

from collections.abc import Mapping
from functools import cached_property
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.contract.attempts.rundir import INDEX_FILE, SHARD_ABOVE, STATE_FILE, Env
from torchyard.run import accelerator

if TYPE_CHECKING:
    import torch


class Given:
    """Reads the environment variables of the rank, and the files that they name."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.rank = int(environ.get("RANK", "0"))
        """The number of this process among all, from 0."""
        self.local_rank = int(environ.get("LOCAL_RANK", "0"))
        """The number of this process on its node, from 0."""
        self.world_size = int(environ.get("WORLD_SIZE", "1"))
        """The number of processes on all nodes."""
        self.data: str | None = environ.get(Env.DATA)
        """The data of a recipe: `digits` or a path; None for a script."""
        self.weights: str | None = environ.get(Env.WEIGHTS)
        """The path of the initial weights; None if they are not a file."""
        self.trial = int(environ[Env.TRIAL]) if environ.get(Env.TRIAL) else None
        """The number of this trial in its sweep, from 0; None if the job belongs to no sweep."""
        above = environ.get(Env.SHARD_ABOVE, str(SHARD_ABOVE))
        self.shard_above = int(above) if above else None
        """Bytes of a sharded state above which each rank writes its own part; None: no limit."""
        self._config_path = environ.get(Env.CONFIG)
        self._resume_from = environ.get(Env.RESUME_FROM)
        self._init_from = environ.get(Env.INIT_FROM)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The job's resolved `config`. Empty outside the service."""
        return json.loads(Path(self._config_path).read_bytes()) if self._config_path else {}

    @cached_property
    def device(self) -> "torch.device":
        """The device of this rank: its GPU or other accelerator, else the CPU."""
        return accelerator.own_device(self.local_rank)

    def resume(self) -> dict[str, Any] | None:
        """Returns the state that an earlier attempt saved. Its tensors are on the CPU, and are read when they are used.

        Returns:
            The `state` of `save_checkpoint`; None on a fresh start.

        Raises:
            OSError: The file cannot be read.
            DataError: A checkpoint of several files cannot be read.

        Example:
            >>> run.resume() is None
            True
        """
        return _state_in(self.resume_folder)

    @property
    def resume_folder(self) -> Path | None:
        """The folder with the files of the checkpoint to resume from. None on a fresh start."""
        return Path(self._resume_from) if self._resume_from else None

    def initial(self) -> dict[str, Any] | None:
        """Returns the state of the checkpoint in the spec's `init_from`.

        Returns:
            The state, as `resume` returns one; None without `init_from`, and if there is a checkpoint to resume from.

        Raises:
            OSError: The file cannot be read.
            DataError: A checkpoint of several files cannot be read.

        Example:
            >>> weights = run.initial()
        """
        return _state_in(self.initial_folder)

    @property
    def initial_folder(self) -> Path | None:
        """The folder with the files of the checkpoint in the spec's `init_from`. None without one."""
        return Path(self._init_from) if self._init_from else None


def _state_in(folder: Path | None) -> dict[str, Any] | None:
    if folder is None:
        return None
    state = folder / STATE_FILE
    if not state.exists():
        if not (folder / INDEX_FILE).exists():  # a file that was captured: the script reads it in its own way
            return None
        from torchyard.states.savedfiles import read_folder

        return read_folder(folder)
    import torch

    return torch.load(state, map_location="cpu", weights_only=True, mmap=True)
