"""How an attempt is submitted to Slurm: its files, its options, and the key that is in no file."""

from collections.abc import Iterator
from datetime import timedelta
import math
from pathlib import Path
import re
import sys

from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import PoolReport
from torchyard.contract.errors import ConfigError
from torchyard.host.recordfiles import write_record
from worker.engines.base import AttemptPlan, ClusterRequest
from worker.engines.slurm import sealing
from worker.engines.slurm.commands import KEY, Submission
from worker.engines.slurm.records import ClusterFiles, ClusterPlan, SealedSecrets

_ENDING = timedelta(seconds=60)
"""What the end of an attempt takes besides its grace."""
_STARTING = timedelta(minutes=6)
"""What a start takes, and how much too early Slurm may warn: the supervisors, not Slurm, end it at its limit."""
_LONGEST_WARNING_S = 65_535
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,99}")
_CONSTRAINT = re.compile(r"[A-Za-z0-9_(\[][A-Za-z0-9_.@+&|*:()\[\]-]{0,199}")


def prepare(plan: AttemptPlan, described: ClusterPlan, *, run: RunDir, pool: PoolReport) -> Submission:
    """Writes what the nodes need. Returns the arguments of sbatch. Raises ConfigError and OSError."""
    options = options_of(plan, name=described.name, run=run, pool=pool)
    files, key = ClusterFiles(run), sealing.new_key()
    sealed = sealing.seal(plan.secrets, key=key, name=described.name)
    write_record(files.secrets(sealing.start_of(key)), SealedSecrets(content=sealed))
    write_record(files.plan, described)
    variables = {"SLURM_TORCHYARD_PYTHON": sys.executable, "SLURM_TORCHYARD_RUN": str(run.root.absolute())}
    return Submission(options=options, variables={**variables, KEY: key.hex()})


def options_of(plan: AttemptPlan, *, name: str, run: RunDir, pool: PoolReport) -> list[str]:
    """Returns the options of sbatch. Raises ConfigError for what no option may say."""
    asked = plan.cluster
    if asked is None:
        raise ConfigError("an attempt without nodes cannot be submitted to Slurm")
    grace = plan.stop_grace + _ENDING
    log = _path(ClusterFiles(run).log)
    return [
        f"--job-name={name}",
        f"--partition={pool.partition}",
        f"--nodes={asked.nodes}",
        "--ntasks-per-node=1",
        "--no-requeue",
        "--dependency=singleton",
        f"--signal=B:TERM@{min(round(grace.total_seconds()), _LONGEST_WARNING_S)}",
        f"--time={_minutes(plan.time_limit + _STARTING + grace, pool.max_time_s)}",
        "--open-mode=append",
        f"--output={log}",
        "--input=/dev/null",
        "--chdir=/",
        *_devices(plan, asked, pool),
        *_chosen(asked),
    ]


def _devices(plan: AttemptPlan, asked: ClusterRequest, pool: PoolReport) -> Iterator[str]:
    if asked.kind == "cuda":
        name = f"{_checked('gpu', asked.gpu)}:" if asked.gpu else ""
        yield f"--gres=gpu:{name}{asked.devices_per_node}"
    yield f"--cpus-per-task={_cpus(plan, asked, pool)}"
    if plan.memory_bytes is not None:
        yield f"--mem={max(1, math.ceil(plan.memory_bytes / (1 << 20)))}M"


def _cpus(plan: AttemptPlan, asked: ClusterRequest, pool: PoolReport) -> int:
    """Returns the CPUs of each node: those that the job wants, or else its devices' share of a node."""
    if plan.cpus is not None:
        return max(1, math.ceil(plan.cpus))
    if not pool.nodes.cpus or not pool.nodes.devices:
        return 1
    return max(1, min(pool.nodes.cpus, pool.nodes.cpus * asked.devices_per_node // pool.nodes.devices))


def _chosen(asked: ClusterRequest) -> Iterator[str]:
    for option in ("account", "qos", "reservation"):
        value = getattr(asked, option)
        if value is not None:
            yield f"--{option}={_checked(option, value)}"
    if asked.constraint is not None:
        yield f"--constraint={_checked('constraint', asked.constraint, _CONSTRAINT)}"


def _checked(field: str, value: str, pattern: re.Pattern[str] = _PLAIN) -> str:
    if pattern.fullmatch(value) is None:
        raise ConfigError(f"slurm.{field}: {value[:100]!r} is not a name that Slurm can have")
    return value


def _minutes(wanted: timedelta, longest_s: int | None) -> int:
    minutes = max(1, math.ceil(wanted.total_seconds() / 60))
    return minutes if longest_s is None else max(1, min(minutes, longest_s // 60))


def _path(path: Path) -> str:
    """Returns an absolute path, in which Slurm must find no pattern."""
    text = str(path.absolute())
    if re.search(r"[%\\\n]", text):
        raise ConfigError(f"the data directory's path has a character that Slurm changes: {text}")
    return text
