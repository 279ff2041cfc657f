"""The settings of `torchyard run`: what each may be, and how the environment writes it as text."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

from torchyard.cli.run import checks
from torchyard.cli.run.checks import Check, items, of_form, one_of, table, text, whole
from torchyard.cli.run.values import Value, duration, fraction, number, pairs, parse_size, truth, words
from torchyard.contract import bounds
from torchyard.contract.bounds import (
    GPU_NAME,
    JOB_NAME,
    JOB_NAME_PATTERN,
    LABEL_KEY,
    MOUNT_PLACE,
    POOL_NAME,
    PYTHON,
    SLURM_FEATURES,
    SLURM_WORD,
    VARIABLE_NAME,
    WORKER_NAME,
)
from torchyard.contract.bundles.names import MAX_PACKED_BYTES
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.text import LONGEST_URL


def _as_typed(table: dict[Any, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in table.items())


@dataclass(frozen=True)
class Key:
    """One setting. `from_text` turns the text of a variable into what `check` takes."""

    name: str
    kind: Check
    allowed: str
    about: str
    example: str
    default: Value = None
    from_text: Callable[[str], Value] = field(default=str)

    @property
    def is_table(self) -> bool:
        return self.from_text is pairs

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return f"TORCHYARD_RUN_{self.name.upper()}"

    def check(self, value: Value) -> Value:
        """Returns the value. Raises ValueError, whose message says what is allowed."""
        try:
            return self.kind(value)
        except ValueError:
            shown = _as_typed(value) if isinstance(value, dict) else repr(value)
            raise ValueError(f"must be {self.allowed}; got {shown[:200]}") from None


AFTER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}(:(succeeded|finished|failed))?$"
_SLURM_WORD = "a Slurm name: letters, digits and . _ @ -"
_SLURM = of_form(SLURM_WORD)
_VARIABLE = of_form(VARIABLE_NAME)
_DURATION = checks.both(text(1), duration)
_LABELS = table(of_form(LABEL_KEY), text(0, bounds.LONGEST_LABEL), most=bounds.MOST_LABELS)

KEYS = (
    Key(
        "name",
        of_form(JOB_NAME_PATTERN),
        JOB_NAME,
        "the job's name; default: the folder's, with a number if taken",
        '"cracks"',
    ),
    Key(
        "devices",
        whole(1, bounds.MOST_DEVICES),
        "a whole number from 1 to 1024",
        "GPUs per node (CPU slots without GPUs), one process each",
        "2",
        default=1,
        from_text=number,
    ),
    Key(
        "nodes",
        whole(1, bounds.MOST_NODES),
        "a whole number from 1 to 10000",
        "nodes of a pool; without a pool a job runs on one host",
        "2",
        default=1,
        from_text=number,
    ),
    Key(
        "pool",
        of_form(POOL_NAME),
        "the name of a pool, as `torchyard workers ls` shows it",
        "the pool to run in; a job of several nodes uses the only pool by default",
        '"gpu"',
    ),
    Key(
        "worker",
        of_form(WORKER_NAME),
        "the name of a worker, as `torchyard workers ls` shows it",
        "the worker to run on; default: any with the devices",
        '"box-b"',
    ),
    Key("account", _SLURM, _SLURM_WORD, "the Slurm account of the job (pools)", '"vision"'),
    Key("qos", _SLURM, _SLURM_WORD, "the Slurm QOS (pools)", '"high"'),
    Key(
        "constraint",
        of_form(SLURM_FEATURES),
        "features of Slurm's nodes, with & | [ ] ( ) * between them",
        "Slurm features that the nodes must have (pools)",
        '"nvlink&ib"',
    ),
    Key("reservation", _SLURM, _SLURM_WORD, "a Slurm reservation (pools)", '"course"'),
    Key(
        "gpu",
        items(of_form(GPU_NAME), least=1, most=bounds.MOST_GPU_NAMES),
        'a list of at most 16 names, such as ["H100", "A100-80GB"]',
        "accepted GPU models",
        '["H100", "A100-80GB"]',
        from_text=words,
    ),
    Key(
        "cpus",
        checks.above_zero(bounds.MOST_CPUS),
        "a number above 0, at most 10000",
        "CPUs per host, for all processes together",
        "8",
        from_text=fraction,
    ),
    Key(
        "memory_gb",
        checks.above_zero(bounds.MOST_MEMORY_GB),
        "a number of GiB above 0, at most 1000000",
        "GiB of memory per host, for all processes together",
        "32",
        from_text=fraction,
    ),
    Key(
        "env",
        table(_VARIABLE, text(0)),
        'a table of texts, such as {OMP_NUM_THREADS = "4"}',
        "environment variables",
        '{OMP_NUM_THREADS = "4"}',
        default={},
        from_text=pairs,
    ),
    Key(
        "secrets",
        table(_VARIABLE, _VARIABLE),
        'a table from variables to names of secrets, such as {WANDB_API_KEY = "WANDB_API_KEY"}',
        "environment variables with values of secrets (`torchyard secrets set NAME`)",
        '{WANDB_API_KEY = "WANDB_API_KEY"}',
        default={},
        from_text=pairs,
    ),
    Key(
        "mounts",
        table(checks.both(text(1, bounds.LONGEST_MOUNT_PLACE), of_form(MOUNT_PLACE)), text(1, LONGEST_URL)),
        "a table from names, or paths such as ./data, to a folder here, data:NAME, bundle:sha256:… or file:///…",
        "data mounted at $TORCHYARD_MOUNTS/NAME, or at a path in the folder",
        '{photos = "file:///data/photos"}',
        default={},
        from_text=pairs,
    ),
    Key(
        "requirements",
        text(1, 500),
        'the path of a requirements.txt or pyproject.toml in the folder, or "script"',
        "packages to install",
        '"requirements.txt"',
    ),
    Key(
        "python",
        of_form(PYTHON),
        "the name of an environment that a worker offers, or the absolute path of one or of its Python",
        "the Python environment to use: venv, conda, uv or pixi",
        '"ml"',
    ),
    Key(
        "include",
        items(text(1, 500), most=100),
        'a list of at most 100 paths and patterns, such as ["data", "*.npz"]',
        "files to upload although git ignores them",
        '["data"]',
        default=[],
        from_text=words,
    ),
    Key(
        "checkpoints",
        items(text(1), most=bounds.MOST_CHECKPOINT_PATTERNS),
        'a list of at most 16 patterns, such as ["out/*.pt"]',
        "written files to save as checkpoints",
        '["out/*.pt"]',
        default=[],
        from_text=words,
    ),
    Key(
        "keep",
        items(text(1), most=bounds.MOST_KEEP),
        f'a list of at most {bounds.MOST_KEEP} patterns, such as ["results/*"]',
        "written files to store",
        '["results/*"]',
        default=[],
        from_text=words,
    ),
    Key(
        "metrics",
        items(text(1), most=bounds.MOST_METRIC_PATTERNS),
        f"a list of at most {bounds.MOST_METRIC_PATTERNS} expressions with a group `value`",
        "expressions that find metrics in the output",
        r"['loss[ =:]+(?P<value>\S+)']",
        default=[],
        from_text=words,
    ),
    Key(
        "launcher",
        one_of("auto", "warm", "torchrun"),
        "auto, warm or torchrun",
        "how to start the processes",
        '"torchrun"',
    ),
    Key(
        "init_from",
        text(1, 400),
        "a checkpoint of a job, such as digits/best, or a named model, such as model:cracks@3",
        "the initial weights",
        '"digits/best"',
    ),
    Key(
        "after",
        items(of_form(AFTER), most=bounds.MOST_AFTER),
        'a list of at most 32 jobs, such as ["prep", "digits:finished"], by id or name',
        "jobs to wait for: JOB (succeeded), JOB:finished or JOB:failed",
        '["prep"]',
        default=[],
        from_text=words,
    ),
    Key(
        "profile",
        of_form(r"^[1-9][0-9]{0,8}:([1-9][0-9]?|100)$"),
        "START:STEPS, such as 20:5, with at most 100 steps",
        "the optimizer steps of rank 0 to profile",
        '"20:5"',
    ),
    Key(
        "time_limit",
        _DURATION,
        "a duration: 90s, 15m, 24h or 7d",
        "stop the job after this time, over all attempts",
        '"24h"',
    ),
    Key(
        "idle_timeout",
        _DURATION,
        "a duration of 1m or more: 30m, 2h",
        "stop the job when its GPUs were idle for this time",
        '"2h"',
    ),
    Key(
        "max_restarts",
        whole(0, bounds.MOST_RESTARTS),
        "a whole number from 0 to 1000",
        "restarts after a failure, once the job has made a step",
        "0",
        default=bounds.DEFAULT_RESTARTS,
        from_text=number,
    ),
    Key(
        "priority",
        whole(-bounds.MOST_PRIORITY, bounds.MOST_PRIORITY),
        "a whole number from -100 to 100",
        "higher starts first",
        "0",
        from_text=number,
    ),
    Key(
        "preemptible",
        checks.truth,
        "true or false",
        "allow preemption: the job saves, stops and resumes later",
        "true",
        from_text=truth,
    ),
    Key(
        "labels",
        checks.both(_LABELS, checks.labels),
        'a table of at most 32 labels, such as {team = "vision"}',
        "labels, to find jobs",
        '{team = "vision"}',
        default={},
        from_text=pairs,
    ),
    Key("visibility", one_of(*get_args(Visibility)), "private or team", "who may read the job", '"team"'),
    Key(
        "max_size",
        parse_size,
        "a size: 500KiB, 200MiB, 200MB, 1GiB, or a number of bytes",
        "refuse a larger upload",
        '"200MiB"',
        default=MAX_PACKED_BYTES,
    ),
    Key(
        "detach",
        checks.truth,
        "true or false",
        "submit without following",
        "true",
        default=False,
        from_text=truth,
    ),
)
"""All settings, in the order in which they are shown."""
