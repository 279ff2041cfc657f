"""The job spec: everything that a user may ask for. A resolved spec is itself a valid spec."""

from datetime import timedelta
import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from torchyard.contract import recipes
from torchyard.contract.attempts.idleness import long_enough
from torchyard.contract.attempts.keeping import KeptPattern
from torchyard.contract.bounds import (
    DEFAULT_RESTARTS,
    JOB_NAME_PATTERN,
    MOST_AFTER,
    MOST_KEEP,
    MOST_PRIORITY,
    MOST_RESTARTS,
)
from torchyard.contract.errors import FieldError, InvalidSpec
from torchyard.contract.notifications.requests import JobNotify
from torchyard.contract.recipes.training import STALL_TIMEOUT
from torchyard.contract.spec import environment
from torchyard.contract.spec.after import After
from torchyard.contract.spec.environment import Env, SecretRef
from torchyard.contract.spec.initial import INIT_FROM, AfterRef, parse_initial
from torchyard.contract.spec.labels import Labels
from torchyard.contract.spec.log_metrics import LogMetrics
from torchyard.contract.spec.resources import Resources, SlurmOptions
from torchyard.contract.spec.schedule import ScheduleKey
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.findings import field_errors
from torchyard.contract.wire.schema import Count, Duration, MetricKey, Schema
from torchyard.contract.wire.text import unstorable
from torchyard.contract.wire.units import DEFAULT_TIME_LIMIT, above_zero

JobName = Annotated[
    str,
    Field(
        pattern=JOB_NAME_PATTERN,
        description="name of the job; it need not be unique",
    ),
]
Priority = Annotated[
    int, Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="jobs with a higher priority start first")
]

MOST_SPEC_BYTES = 262_144
"""The most bytes of a job spec that is submitted."""
MOST_SPEC_VALUES = 10_000
"""The most keys and values in a spec: each may cost an error message."""


class CheckpointPolicy(Schema):
    every_epochs: Count | None = Field(
        default=1, description="epochs between two checkpoints; null: only by steps, at a stop and at the end"
    )
    every_steps: Count | None = Field(
        default=None, description="steps between two checkpoints; null: only by epochs, at a stop and at the end"
    )
    keep_last: Count | None = Field(default=None, description="number of newest checkpoints to keep; null: all")
    keep_best: Count = Field(default=1, description="number of best checkpoints to keep in addition, by `monitor`")
    monitor: MetricKey = Field(
        default="val/loss", description="monitored metric: it decides which checkpoint is `best`"
    )
    mode: Literal["min", "max"] = Field(
        default="min", description="whether a lower (`min`) or a higher (`max`) value is better"
    )


class Profile(Schema):
    """The optimizer steps of rank 0 to profile with torch.profiler."""

    start: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(
        default=20, description="step after which the profile begins"
    )
    steps: Annotated[int, Field(ge=1, le=100)] = Field(default=5, description="number of steps to profile")


class _Common(Schema):
    resources: Resources = Resources()
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    priority: Priority = 0
    preemptible: bool = Field(
        default=False,
        description="whether other jobs may preempt this job; it saves a checkpoint and returns to the queue",
    )
    max_restarts: Annotated[int, Field(ge=0, le=MOST_RESTARTS)] = Field(
        default=DEFAULT_RESTARTS,
        description="maximum number of restarts after a failure. An error of the program before its first progress "
        "is not retried",
    )
    time_limit: Duration = Field(default=DEFAULT_TIME_LIMIT, description="maximum run time of all attempts together")
    stall_timeout: Duration = Field(
        default=STALL_TIMEOUT, description="maximum time without progress. For a script it counts from its first event"
    )
    idle_timeout: Duration | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="stop the job after this time with all GPUs below 5% utilization; a warning comes at half of "
        "it. At least `1m`; null: the server's maximum, if it has one",
    )
    stop_grace: Duration = Field(default=timedelta(seconds=30), description="time between the stop signal and the kill")
    launcher: Literal["auto", "warm", "torchrun"] = Field(
        default="auto",
        description="`auto`: fork from the worker's warm process (starts in under a second) if possible, else torchrun",
    )
    visibility: Visibility | None = Field(
        default=None,
        description="`team`: all users may read the job; `private`: only its owner and administrators; null: the "
        "server's default",
    )
    labels: Labels = Field(default={}, description="labels to find and group jobs by")
    env: Env = {}
    slurm: SlurmOptions | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="options for the Slurm cluster of `resources.pool`",
    )
    profile: Profile | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="profile some steps; the trace is stored as an artifact, and a message lists the largest costs",
    )
    notify: JobNotify = None
    init_from: Annotated[str, Field(pattern=INIT_FROM, max_length=300)] | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="checkpoint to take the initial weights from: `job_…/REF`, where REF is `best`, `latest`, "
        "`epoch-N`, `step-N` or an id; `${jobs.NAME.REF}` for a job in `after`; `swp_…/best`; or "
        "`model:NAME@VERSION`. The files stay until the job ends",
    )
    after: Annotated[list[After], Field(max_length=MOST_AFTER)] = Field(
        default=[],
        exclude_if=lambda value: not value,
        description="jobs that must end before this one starts",
    )

    schedule: ScheduleKey | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="times for `POST /v1/schedules`: a cron expression, or an object with a time zone and more",
    )

    @property
    def plain_env(self) -> dict[str, str]:
        """The variables whose values are in the spec."""
        return {name: value for name, value in self.env.items() if isinstance(value, str)}

    @property
    def secrets(self) -> dict[str, str]:
        """The names of secrets, by variable."""
        return {name: value.secret for name, value in self.env.items() if isinstance(value, SecretRef)}

    @field_validator("time_limit", "stall_timeout")
    @classmethod
    def _above_zero(cls, value: timedelta) -> timedelta:
        return above_zero(value)

    @field_validator("idle_timeout")
    @classmethod
    def _idle_for_long_enough(cls, value: timedelta | None) -> timedelta | None:
        return long_enough(value)

    @model_validator(mode="after")
    def _later_weights_are_of_a_job_in_after(self) -> Self:
        if self.later_weights is not None and not self.after:
            raise ValueError(f"init_from is {self.init_from}: name that job in `after`")
        return self

    @property
    def later_weights(self) -> AfterRef | None:
        """What `init_from` names, if it is a checkpoint that a job in `after` is to have."""
        if self.init_from is None or not self.init_from.startswith("$"):
            return None
        found = parse_initial(self.init_from)
        return found if isinstance(found, AfterRef) else None


class RecipeSpec(_Common):
    """A job for a built-in recipe; `config` is validated by the schema of the recipe that `trainer` names."""

    trainer: str
    name: JobName
    mode: Literal["train", "evaluate"] = Field(
        default="train",
        exclude_if=lambda value: value == "train",
        description="`train`, or `evaluate`: evaluate the checkpoint of `init_from` on the validation split, then end",
    )
    config: recipes.Recipe

    @property
    def urls(self) -> dict[str, str]:
        """Where data and weights come from, by field: a bundle, a file, or a name."""
        return {"config.data.source": self.config.data.source, "config.model.weights": self.config.model.weights}

    @field_validator("env")
    @classmethod
    def _env_runs_no_code(cls, env: dict[str, Any]) -> dict[str, Any]:
        for name in env:
            if not environment.is_allowed(name):
                raise ValueError(
                    f"{name} cannot be set for a recipe, only for a script: docs/reference/recipes.md lists the others"
                )
        return env

    @model_validator(mode="after")
    def _weights_have_one_source(self) -> Self:
        if self.mode == "evaluate" and self.init_from is None:
            raise ValueError("mode evaluate needs init_from, the checkpoint to measure")
        given_twice = self.config.model.weights != "none" and not self.config.STARTS_ON_BASE
        if self.init_from is not None and given_twice:
            raise ValueError("init_from and config.model.weights cannot be combined: leave out one of them")
        return self

    @model_validator(mode="after")
    def _monitors_are_measured(self) -> Self:
        measured = recipes.REGISTRY[self.trainer].metrics - self.config.unmeasured
        if self.checkpoint.monitor not in measured:
            raise ValueError(f"checkpoint.monitor must be one of {', '.join(sorted(measured))}")
        evaluated = sorted(key for key in measured if key.startswith("val/"))
        stopping, schedule = self.config.early_stopping, self.config.lr_scheduler
        if stopping is not None and stopping.monitor not in evaluated:
            raise ValueError(f"config.early_stopping.monitor must be one of {', '.join(evaluated)}")
        if schedule.name == "plateau" and self.checkpoint.monitor not in evaluated:
            raise ValueError(f"with lr_scheduler plateau, checkpoint.monitor must be one of {', '.join(evaluated)}")
        return self

    @model_validator(mode="after")
    def _resolve_timeout(self) -> Self:
        """Replaces `distributed.timeout: auto` by the duration: a rank does not know `stall_timeout`."""
        distributed = self.config.distributed
        if distributed.timeout != "auto":
            return self
        timeout = distributed.collective_timeout(self.stall_timeout)
        resolved = distributed.model_copy(update={"timeout": timeout})
        config = self.config.model_copy(update={"distributed": resolved})
        object.__setattr__(self, "config", config)  # it is being made: a copy would cost a tenth of its validation
        return self


class ScriptSpec(_Common):
    """A job that runs your own program."""

    trainer: Literal["script"]
    name: JobName = "script"
    keep: Annotated[list[KeptPattern], Field(max_length=MOST_KEEP)] = Field(
        default=[],
        exclude_if=lambda patterns: not patterns,
        description="patterns of files and folders in the working folder to store, while the program runs and at "
        "its end. Default: the files that it created or changed, up to 64 MiB or the worker's limit",
    )
    metrics: LogMetrics = Field(
        default=LogMetrics(),
        exclude_if=lambda metrics: not metrics.patterns,
        description="metrics to read from the program's output",
    )
    config: recipes.Script

    @property
    def urls(self) -> dict[str, str]:
        """Where the code and the mounts come from, by field."""
        mounts = {f"config.mounts.{name}": url for name, url in self.config.mounts.items()}
        return {"config.code": self.config.code} | mounts


Spec: TypeAlias = RecipeSpec | ScriptSpec


def _spec_of(recipe: recipes.RecipeEntry) -> type[RecipeSpec]:
    """Returns the spec class of one recipe. `config` may be left out if the recipe has a default for every key."""
    required = any(field.is_required() for field in recipe.config.model_fields.values())
    fields: dict[str, Any] = {
        "trainer": Literal[recipe.name],  # pyrefly: ignore[invalid-literal] - made here
        "name": (JobName, recipe.name),
        "config": recipe.config if required else (recipe.config, recipe.config.model_validate({})),
    }
    name, doc = f"{recipe.config.__name__}Spec", f"A job for the built-in recipe `{recipe.name}`."
    return create_model(name, __base__=RecipeSpec, __module__=__name__, __doc__=doc, **fields)


if TYPE_CHECKING:
    JobSpec: TypeAlias = Spec
else:  # a type checker cannot read a union of classes that are made from the registry
    _CLASSES = (*map(_spec_of, recipes.REGISTRY.values()), ScriptSpec)
    JobSpec = Annotated[functools.reduce(operator.or_, _CLASSES), Field(discriminator="trainer")]
"""The type of a job spec in pydantic models: the value of `trainer` selects the class that validates the spec."""

SPEC: TypeAdapter[Spec] = TypeAdapter(JobSpec)


CONFIGS: dict[str, type[Schema]] = {
    **{name: recipe.config for name, recipe in recipes.REGISTRY.items()},
    "script": recipes.Script,
}
"""Each trainer's configuration schema."""


def parse_spec(raw: object) -> Spec:
    """The spec in `raw` (parsed JSON or YAML), every default filled in. Raises InvalidSpec, naming each field."""
    wrong = unstorable(raw, most_values=MOST_SPEC_VALUES)
    if wrong is not None:
        raise InvalidSpec("the job spec is not valid", errors=(FieldError(*wrong),))
    try:
        return SPEC.validate_python(raw)
    except ValidationError as error:
        raise InvalidSpec("the job spec is not valid", errors=field_errors(error, JobSpec)) from None
