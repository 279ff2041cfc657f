"""The settings of `torchyard run`: what each may be, and how the environment writes it as text."""

from collections.abc import Callable
from dataclasses import dataclass, field
import functools
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from torchyard.cli.run.values import Value, duration, fraction, number, pairs, parse_size, truth, words
from torchyard.client.packing import MAX_SIZE
from torchyard.contract.attempts.keeping import MOST_KEEP
from torchyard.contract.bundles.mounting import MountPlace
from torchyard.contract.recipes.script import PYTHON
from torchyard.contract.spec.after import MOST_AFTER
from torchyard.contract.spec.environment import VARIABLE_NAME
from torchyard.contract.spec.labels import Labels
from torchyard.contract.spec.log_metrics import MOST_METRIC_PATTERNS
from torchyard.contract.spec.resources import GpuName, PoolName, SlurmFeatures, SlurmWord
from torchyard.contract.spec.spec import DEFAULT_RESTARTS, JOB_NAME, JobName, Priority
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.schema import LONGEST_URL


def _as_typed(table: dict[Any, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in table.items())


def _above_zero(most: int) -> Any:
    return Annotated[float, Field(gt=0, le=most, allow_inf_nan=False)]


@dataclass(frozen=True)
class Key:
    """One setting. `from_text` turns the text of a variable into what `check` takes."""

    name: str
    kind: Any
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
            return self._adapter.validate_python(value)
        except ValidationError:
            shown = _as_typed(value) if isinstance(value, dict) else repr(value)
            raise ValueError(f"must be {self.allowed}; it is {shown[:200]}") from None

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[Value]:
        return TypeAdapter(self.kind, config=ConfigDict(strict=True))


AFTER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}(:(succeeded|finished|failed))?$"
_SLURM_WORD = "a name of Slurm: letters, digits and the characters . _ @ -"
_Variable = Annotated[str, Field(pattern=VARIABLE_NAME)]
_Size = Annotated[int, BeforeValidator(parse_size)]
_Duration = Annotated[str, AfterValidator(duration)]

KEYS = (
    Key(
        "name",
        JobName,
        JOB_NAME,
        "the name of the job; without it, that of the folder, with a number if another job has it",
        '"cracks"',
    ),
    Key(
        "devices",
        Annotated[int, Field(ge=1, le=1024)],
        "a whole number from 1 to 1024",
        "GPUs, or CPU slots where there are no GPUs, of each node: one process for each",
        "2",
        default=1,
        from_text=number,
    ),
    Key(
        "nodes",
        Annotated[int, Field(ge=1, le=10_000)],
        "a whole number from 1 to 10000",
        "machines of a pool, each with so many devices; one job spans one host without a pool",
        "2",
        default=1,
        from_text=number,
    ),
    Key(
        "pool",
        PoolName,
        "the name of a pool, as `torchyard workers` shows it",
        "the pool whose cluster runs the job; without it, the only one for a job of several nodes",
        '"gpu"',
    ),
    Key("account", SlurmWord, _SLURM_WORD, "the account of Slurm that pays for the job in a pool", '"vision"'),
    Key("qos", SlurmWord, _SLURM_WORD, "the quality of service in a pool", '"high"'),
    Key(
        "constraint",
        SlurmFeatures,
        "features of Slurm's nodes, with & | [ ] ( ) * between them",
        "features that the nodes of a pool must have",
        '"nvlink&ib"',
    ),
    Key("reservation", SlurmWord, _SLURM_WORD, "a reservation of Slurm in a pool", '"course"'),
    Key(
        "gpu",
        Annotated[list[GpuName], Field(min_length=1, max_length=16)],
        'a list of at most 16 names, such as ["H100", "A100-80GB"]',
        "names of GPUs, any of which will do",
        '["H100", "A100-80GB"]',
        from_text=words,
    ),
    Key(
        "cpus",
        _above_zero(10_000),
        "a number above 0, at most 10000",
        "processors of each host, for all its processes together",
        "8",
        from_text=fraction,
    ),
    Key(
        "memory_gb",
        _above_zero(1_000_000),
        "a number of GiB above 0, at most 1000000",
        "memory of each host in GiB, for all its processes together",
        "32",
        from_text=fraction,
    ),
    Key(
        "env",
        dict[_Variable, str],
        'a table of texts, such as {OMP_NUM_THREADS = "4"}',
        "variables of the program",
        '{OMP_NUM_THREADS = "4"}',
        default={},
        from_text=pairs,
    ),
    Key(
        "secrets",
        dict[_Variable, _Variable],
        'a table from variables to names of secrets, such as {WANDB_API_KEY = "WANDB_API_KEY"}',
        "variables whose values are secrets of yours (`torchyard secrets set NAME`)",
        '{WANDB_API_KEY = "WANDB_API_KEY"}',
        default={},
        from_text=pairs,
    ),
    Key(
        "mounts",
        dict[MountPlace, Annotated[str, Field(min_length=1, max_length=LONGEST_URL)]],
        "a table from names, or paths such as ./data, to a folder here, data:NAME, bundle:sha256:… or file:///…",
        "data that the program finds at $TORCHYARD_MOUNTS/NAME, or at a path of its folder",
        '{photos = "file:///data/photos"}',
        default={},
        from_text=pairs,
    ),
    Key(
        "requirements",
        Annotated[str, Field(min_length=1, max_length=500)],
        'the path of a requirements.txt or pyproject.toml in the folder, or "script"',
        "the packages that the program needs",
        '"requirements.txt"',
    ),
    Key(
        "python",
        Annotated[str, Field(pattern=PYTHON)],
        "the name of an environment that a worker offers, or the absolute path of one or of its Python",
        "the environment whose Python and packages the program has: a venv, conda, uv or pixi environment",
        '"ml"',
    ),
    Key(
        "include",
        Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]], Field(max_length=100)],
        'a list of at most 100 paths and patterns, such as ["data", "*.npz"]',
        "files of the folder that are packed although git ignores them",
        '["data"]',
        default=[],
        from_text=words,
    ),
    Key(
        "checkpoints",
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=16)],
        'a list of at most 16 patterns, such as ["out/*.pt"]',
        "files and folders that the program writes below its working folder, and that become checkpoints",
        '["out/*.pt"]',
        default=[],
        from_text=words,
    ),
    Key(
        "keep",
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=MOST_KEEP)],
        f'a list of at most {MOST_KEEP} patterns, such as ["results/*"]',
        "files and folders that the program writes below its working folder, and that are stored by their paths",
        '["results/*"]',
        default=[],
        from_text=words,
    ),
    Key(
        "metrics",
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=MOST_METRIC_PATTERNS)],
        f"a list of at most {MOST_METRIC_PATTERNS} expressions with a group `value`",
        "expressions that find metrics in the lines that the program writes",
        r"['loss[ =:]+(?P<value>\S+)']",
        default=[],
        from_text=words,
    ),
    Key(
        "launcher",
        Literal["auto", "warm", "torchrun"],
        "auto, warm or torchrun",
        "how the processes are started",
        '"torchrun"',
    ),
    Key(
        "init_from",
        Annotated[str, Field(min_length=1, max_length=400)],
        "a checkpoint of a job, such as digits/best, or a named model, such as model:cracks@3",
        "the weights that the program starts from",
        '"digits/best"',
    ),
    Key(
        "after",
        Annotated[list[Annotated[str, Field(pattern=AFTER)]], Field(max_length=MOST_AFTER)],
        'a list of at most 32 jobs, such as ["prep", "digits:finished"], by id or name',
        "jobs that must have ended before this one starts: JOB, JOB:finished or JOB:failed",
        '["prep"]',
        default=[],
        from_text=words,
    ),
    Key(
        "profile",
        Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}:([1-9][0-9]?|100)$")],
        "START:STEPS, such as 20:5, with at most 100 steps",
        "the optimizer steps of rank 0 that are profiled",
        '"20:5"',
    ),
    Key("time_limit", _Duration, "a duration: 90s, 15m, 24h or 7d", "the most time of all attempts", '"24h"'),
    Key(
        "idle_timeout",
        _Duration,
        "a duration of 1m or more: 30m, 2h",
        "how long it may use none of its GPUs, until it is stopped",
        '"2h"',
    ),
    Key(
        "max_restarts",
        Annotated[int, Field(ge=0, le=1000)],
        "a whole number from 0 to 1000",
        "how often the program runs again after it has failed, unless that was before its first step",
        "0",
        default=DEFAULT_RESTARTS,
        from_text=number,
    ),
    Key("priority", Priority, "a whole number from -100 to 100", "higher starts first", "0", from_text=number),
    Key(
        "preemptible",
        bool,
        "true or false",
        "it may be stopped, with a checkpoint, so that another job can start; it goes on later",
        "true",
        from_text=truth,
    ),
    Key(
        "labels",
        Labels,
        'a table of at most 32 labels, such as {team = "vision"}',
        "labels, by which jobs are found",
        '{team = "vision"}',
        default={},
        from_text=pairs,
    ),
    Key("visibility", Visibility, "private or team", "who may read the job", '"team"'),
    Key(
        "max_size",
        _Size,
        "a size: 500KiB, 200MiB, 200MB, 1GiB, or a number of bytes",
        "the most bytes of the folder that are uploaded",
        '"200MiB"',
        default=MAX_SIZE,
    ),
    Key(
        "detach",
        bool,
        "true or false",
        "submit, and do not follow the job",
        "true",
        default=False,
        from_text=truth,
    ),
)
"""All settings, in the order in which they are shown."""
