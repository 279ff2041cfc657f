"""One attempt on disk: its files, the records in them, and the environment of a training process.

The supervisor and the ranks share only this folder and the environment variables named here.

    ctl/               written by worker and supervisor alone
      plan.json        what to start, and its limits                 the worker writes it, the supervisor reads it
      supervisor.json  the supervisor's identity                     the supervisor writes it
      supervisor.log   the supervisor's output
      init.json        the process above all of the attempt, if      the supervisor writes it
                       that is not the supervisor: strict isolation
      brought.json     how far the files with curves were            the worker writes it
                       read that were there before the attempt started
      exit.json        how the attempt ended; nothing runs any more  the supervisor writes it
      door             brings a user's connection into the sandbox    the supervisor listens, the worker connects
      door.key         what the worker shows there                   the supervisor writes it
      shown/           what ranks see also where they see nothing else of ctl/. Of a node of several, and of an attempt
                       that an earlier release has started, its files are in ctl/ itself
      shown/stop.json  asks the attempt to stop                      the worker writes it, supervisor and ranks read it
      shown/secrets.sock   gives secrets to the ranks of torchrun    the supervisor listens
      shown/door.sock  has the door begin, under strict isolation    the supervisor listens, once
      nodes/N/         the files above of node N, where a cluster has started the attempt: then those in ctl/ itself are
                       of the whole attempt. And ended/R, or ended/R.finished if its program has done all its work: the
                       supervisor there has seen the end of rank R. Ranks see the names, but may read no file of ctl/
    input/             written by the worker, read-only once the attempt starts
      config.json      the trainer's resolved configuration
      resume/          the checkpoint to resume from
      initial/         the files of the weights to start from, if there is nothing to resume from
      best/            the state of the best checkpoint of earlier attempts, if it is another one
      mounts/          links to the folders that the job's spec mounts
    job/               written by the job: anything here may be forged
      events.jsonl     lines of `torchyard.contract.attempts.events`                   rank 0 appends
      ranks/N.json     the process of rank N                         rank N writes it when it starts
      ranks/N.finished its program has done all its work             rank N touches it
      ranks/N.variables    its variables, but for secrets            who starts rank N as a program writes it
      errors/N.json    the exception of rank N                       rank N writes it
      collectives/     what PyTorch's flight recorder knew at a hang          each rank writes its own files
      stacks/N.txt     the stacks of rank N, for who asked           rank N appends
      stop/            the ranks' agreement on the last step         the ranks write it
      stop/paused      the attempt pauses by itself, where it was to         the ranks touch it
      logs/            one file per rank and stream                  the ranks' output, copied by the operating system
      logs/rank-N.order    where it went on in the other stream      rank N appends, of what Python's streams write
      torchrun/        torchrun's own folder                         torchrun
      checkpoints/     published checkpoints: each is whole once it has its manifest
      artifacts/       other files that the job leaves; the next attempt on this host finds them in its own folder
      media/           pictures that the run shows                            rank 0 writes them before their line

Beside the folders of its attempts, a job whose code is a bundle has what outlives them:

    work/              the working folder of the program, with its own copy of the bundle. It belongs to the job: an
                       attempt finds there what the one before has left. May be written by the job
    work/from-tmp/     what the last attempt left in its temporary folder, for the next one's
    work.json          which attempt used it last                             the worker writes it, as the next one
    brought.json       the files with curves that came with the code
"""

from collections.abc import Iterable
from dataclasses import dataclass
import os
from pathlib import Path
import signal
from struct import Struct

from torchyard.contract.wire.since311 import Self, StrEnum

WORK = "work"
"""The name of a job's working folder, beside the folders of its attempts."""
FROM_TMP = "from-tmp"
"""The folder in it that has what an attempt left in its temporary folder. While one runs, it is in that folder."""
MANIFEST = "manifest.json"
STATE_FILE = "state.pt"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "state.index.json"
"""In place of STATE_FILE where each rank has written its own part of a state."""
ORDER_MARK = Struct("<qq")
"""A mark of `logs/rank-N.order`: the bytes of stdout and of stderr that were written before."""
ARCHIVE_SUFFIX = ".tar"
"""Of a file with all files of such a checkpoint, as a download gives it."""
SHARD_ABOVE = 4 << 30
"""The default of Env.SHARD_ABOVE."""

PYTHONPATH = "PYTHONPATH"
"""A variable that a job may set to folders of its code: paths relative to its folder, with `:` between them."""
STACKS_SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGUSR1)  # ranks run on Linux, which has it
"""The stacks of its threads. Not SIGUSR1: scripts have handlers of their own for it. Where they have none, it writes
the stacks into the log."""
COLLECTIVES_SIGNAL = getattr(signal, "SIGRTMIN", signal.SIGUSR2)
"""Its collectives, as PyTorch's flight recorder knows them."""


class Env(StrEnum):
    """Environment variables of a training process, in addition to torchrun's own."""

    JOB_ID = "TORCHYARD_JOB_ID"
    ATTEMPT = "TORCHYARD_ATTEMPT"
    RUN_DIR = "TORCHYARD_RUN_DIR"
    CONFIG = "TORCHYARD_CONFIG"
    CHECKPOINT_DIR = "TORCHYARD_CHECKPOINT_DIR"
    RESUME_FROM = "TORCHYARD_RESUME_FROM"  # a folder with the files of a checkpoint; absent on a fresh start
    INIT_FROM = "TORCHYARD_INIT_FROM"  # a folder with the files of the weights to start from; absent without any
    MOUNTS = "TORCHYARD_MOUNTS"  # the folder in which each mount has its name; absent without mounts
    DATA = "TORCHYARD_DATA"  # the resolved `data.source`: `digits`, or an absolute path; absent for a script
    LISTENER = (
        "TORCHYARD_LISTENER"  # the descriptor of the socket where the ranks of several nodes meet; never a rank's
    )
    SECRETS = "TORCHYARD_SECRETS"  # the socket at which a rank that torchrun starts asks for secret variables
    DOOR = "TORCHYARD_DOOR"  # the socket of the door, under strict isolation; never a rank's
    ISOLATION = "TORCHYARD_ISOLATION"  # the level at which the attempt is isolated; absent if it is not
    CPUS = "TORCHYARD_CPUS"  # how many of the host's CPUs each rank of the attempt may keep busy; at least 1
    PAUSE_AT = "TORCHYARD_PAUSE_AT"  # `epochs:N` or `steps:N`, where the attempt pauses by itself; a trial's alone
    TRIAL = "TORCHYARD_TRIAL"  # the number of the trial in its sweep, from 0; a trial's alone
    PROFILE = "TORCHYARD_PROFILE"  # `START:STEPS`, the optimizer steps to profile; absent without `profile`
    WEIGHTS = "TORCHYARD_WEIGHTS"  # the absolute path of `model.weights`; absent if that is a name
    SHARD_ABOVE = "TORCHYARD_SHARD_ABOVE"  # bytes of a state in shards above which each rank writes its own; or empty


@dataclass(frozen=True)
class RunDir:
    """The paths in one attempt's folder."""

    root: Path
    node: int | None = None
    """With several nodes, the node whose control files are meant. None: the only one, or the whole attempt."""

    @classmethod
    def of_job(cls, path: Path) -> Self:
        """Returns the run directory of a rank. `path` is the value of TORCHYARD_RUN_DIR."""
        return cls(path.parent)

    def of_node(self, node: int) -> "RunDir":
        """Returns the same folder with the control files of one of several nodes."""
        return RunDir(self.root, node)

    @property
    def ctl(self) -> Path:
        whole = self.root / "ctl"
        return whole if self.node is None else whole / "nodes" / str(self.node)

    @property
    def shown(self) -> Path:
        return self.ctl / "shown"

    @property
    def _seen(self) -> Path:
        return self.shown if os.path.isdir(self.shown) else self.ctl  # noqa: PTH112 ranks ask at every step

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def job(self) -> Path:
        """The value of TORCHYARD_RUN_DIR."""
        return self.root / "job"

    @property
    def config(self) -> Path:
        return self.input / "config.json"

    @property
    def launch(self) -> Path:
        return self.ctl / "plan.json"

    @property
    def supervisor(self) -> Path:
        return self.ctl / "supervisor.json"

    @property
    def supervisor_log(self) -> Path:
        return self.ctl / "supervisor.log"

    @property
    def stop(self) -> Path:
        return self._seen / "stop.json"

    @property
    def init(self) -> Path:
        return self.ctl / "init.json"

    @property
    def brought(self) -> Path:
        return self.ctl / "brought.json"

    @property
    def secrets(self) -> Path:
        return self._seen / "secrets.sock"

    @property
    def door(self) -> Path:
        return self.ctl / "door"

    @property
    def door_inside(self) -> Path:
        return self._seen / "door.sock"

    @property
    def door_key(self) -> Path:
        return self.ctl / "door.key"

    @property
    def exit(self) -> Path:
        return self.ctl / "exit.json"

    @property
    def events(self) -> Path:
        return self.job / "events.jsonl"

    @property
    def ranks(self) -> Path:
        return self.job / "ranks"

    @property
    def errors(self) -> Path:
        return self.job / "errors"

    @property
    def stacks(self) -> Path:
        return self.job / "stacks"

    @property
    def collectives(self) -> Path:
        return self.job / "collectives"

    @property
    def agreement(self) -> Path:
        return self.job / "stop"

    @property
    def paused(self) -> Path:
        """A file that exists once the ranks know that they have come to where the attempt is to pause."""
        return self.agreement / "paused"

    @property
    def logs(self) -> Path:
        return self.job / "logs"

    @property
    def ended(self) -> Path:
        """With several nodes: a file for each rank whose end the node's supervisor has seen."""
        return self.ctl / "ended"

    def has_ended(self, rank: int) -> bool:
        """Whether the supervisor of this node has seen the end of that rank."""
        return self.left_early(rank) or os.path.lexists(self.ended / f"{rank}.finished")

    def left_early(self, rank: int) -> bool:
        """Whether it has, and the rank's program had not done all its work."""
        return os.path.lexists(self.ended / f"{rank}")

    @property
    def torchrun(self) -> Path:
        whole = self.job / "torchrun"
        return whole if self.node is None else whole / f"node-{self.node}"

    @property
    def launcher(self) -> str:
        """The source of the launcher's log: `launcher`, and `launcher-N` of further nodes."""
        return f"launcher-{self.node}" if self.node else "launcher"

    @property
    def resume(self) -> Path:
        return self.input / "resume"

    @property
    def initial(self) -> Path:
        return self.input / "initial"

    @property
    def best(self) -> Path:
        return self.input / "best"

    @property
    def run_package(self) -> Path:
        """The folder with `torchyard.run` alone, for a program in an environment that has none of our packages."""
        return self.input / "python"

    @property
    def mounts(self) -> Path:
        return self.input / "mounts"

    @property
    def work(self) -> Path:
        """The working folder of a script whose code is a bundle: the job's, whichever its attempt."""
        return self.root.parent / WORK

    @property
    def work_record(self) -> Path:
        return self.root.parent / "work.json"

    @property
    def came(self) -> Path:
        """What came with the code into the working folder, as `brought` has it of an attempt."""
        return self.root.parent / "brought.json"

    @property
    def checkpoints(self) -> Path:
        return self.job / "checkpoints"

    @property
    def artifacts(self) -> Path:
        return self.job / "artifacts"

    @property
    def media(self) -> Path:
        return self.job / "media"

    def finished(self, rank: int) -> Path:
        """A file that exists once the rank's program has done all its work: it did not leave early for a stop."""
        return self.ranks / f"{rank}.finished"

    def variables(self, rank: int) -> Path:
        """A file with the variables of a rank that was started as a program, as `/proc/PID/environ` has them."""
        return self.ranks / f"{rank}.variables"

    def log(self, source: str, stream: str) -> Path:
        """The log of `source` (`launcher` or `rank-N`) and `stream` (`stdout` or `stderr`)."""
        return self.logs / f"{source}.{stream}"

    def create(self) -> None:
        """Creates the folders, for their owner alone. Makes sealed inputs writable again. Raises OSError."""
        self.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = (self.root, self.ctl, self.shown, self.input, self.job)
        told = (self.errors, self.stacks, self.collectives, self.logs)
        for folder in (*own, *told, self.ranks, self.agreement, self.checkpoints, self.artifacts):
            folder.mkdir(mode=0o700, exist_ok=True)
        for folder, _, files in os.walk(self.input):
            _set_modes(Path(folder), files, folder_mode=0o700, file_mode=0o600)

    def seal(self) -> None:
        """Makes the inputs read-only, also for their owner, until `create` is called again. Raises OSError."""
        for folder, _, files in os.walk(self.input, topdown=False):
            _set_modes(Path(folder), files, folder_mode=0o500, file_mode=0o400)


def is_in_parts(paths: Iterable[str]) -> bool:
    """Whether these are the files of a checkpoint of which each rank has written its part."""
    found = {*paths}
    return INDEX_FILE in found and STATE_FILE not in found


def process_title(job_id: str, attempt: int, role: str) -> str:
    """Returns the title of a process of an attempt, by which orphans are found. `role`: `rank N` or `supervisor`.

    The first 15 characters, which the kernel keeps as the process name, have no space: some programs parse
    `/proc/PID/stat` by spaces.
    """
    return f"torchyard:{job_id} attempt {attempt} {role}"


def _set_modes(folder: Path, files: list[str], *, folder_mode: int, file_mode: int) -> None:
    folder.chmod(folder_mode)
    for name in files:
        if not (folder / name).is_symlink():  # what a mount leads to is not ours
            (folder / name).chmod(file_mode)
