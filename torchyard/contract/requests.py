"""The bodies of requests: about users, tokens, sessions and quotas, and actions on many jobs."""

from datetime import timedelta
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationError, model_validator
from pydantic_core import from_json, to_json

from torchyard.contract.errors import FieldError, InvalidRequest
from torchyard.contract.filters import NO_CONTROLS, JobFilter
from torchyard.contract.findings import field_errors
from torchyard.contract.keeping import MOST_KEEP, KeptPattern
from torchyard.contract.labels import LabelChanges
from torchyard.contract.logmetrics import MetricPattern
from torchyard.contract.models import MODEL_NAME
from torchyard.contract.parts import MOST_PARTS_ASKED
from torchyard.contract.resources import Devices
from torchyard.contract.schema import BOUND_IN_BYTES, UNSET, Duration, Schema
from torchyard.contract.team import Resource, Role, Scope, Visibility
from torchyard.contract.text import unstorable
from torchyard.contract.wording import allowing

S = TypeVar("S", bound=Schema)

USER_NAME = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$",
    "1 to 64 letters, digits, `.`, `_`, `@` and `-`, of which the first is a letter or a digit",
)
UserName = Annotated[str, Field(pattern=USER_NAME)]
DATA_NAME = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    "1 to 100 letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit",
)
DataName = Annotated[str, Field(pattern=DATA_NAME)]
"""What a user calls a bundle of data: `data:NAME`."""
_Digest = Annotated[str, Field(pattern=allowing(r"^[0-9a-f]{64}$", "the 64 hexadecimal digits of a sha256"))]
MOST_ACTIONS = 1000
"""The most jobs on which one request acts."""
MOST_JOBS = 10_000
"""The most jobs of a batch."""
MOST_ATOMIC_JOBS = 500
"""The most jobs of a batch of which all are stored, or none."""
MOST_BATCH_BYTES = 16 << 20
MOST_PREFERENCES_BYTES = 32_768
MOST_SCOPES = 100
"""The most scopes that are named for a token, equal ones included."""
"""The most bytes of a user's preferences, as JSON."""
_MOST_BATCH_KEYS = 10
_MOST_VALUES = 2500
"""The most keys and values in a request: each may cost an error message. `MOST_ACTIONS` ids are fewer."""
JobAction = Literal["cancel", "pause", "resume", "delete", "archive", "unarchive", "label", "star", "unstar"]
TokenName = Annotated[str, Field(min_length=1, max_length=100, pattern=NO_CONTROLS)]


def _role(value: Any) -> Any:
    return Role(value) if isinstance(value, str) and value in set(Role) else value


def _scopes(value: Any) -> Any:
    return [_scope(item) for item in value] if isinstance(value, list) else value


def _scope(value: Any) -> Any:
    return Scope(value) if isinstance(value, str) and value in set(Scope) else value


Limit = Annotated[int, Field(ge=0, lt=2**62)] | None
RoleName = Annotated[Role, BeforeValidator(_role)]


class NewUser(Schema):
    """A user to add."""

    name: UserName
    role: RoleName = Role.MEMBER


class UserPatch(Schema):
    """What can be changed of a user. What is null or left out stays."""

    role: RoleName | None = None
    disabled: bool | None = None
    jobs: Literal["keep", "cancel"] = Field(default="keep", description="what becomes of a disabled user's jobs")


class NewToken(Schema):
    """A token to make."""

    name: TokenName = "token"
    user: UserName | None = Field(default=None, description="whose token; only an administrator may name another user")
    scopes: Annotated[list[Scope], BeforeValidator(_scopes)] | None = Field(
        default=None, max_length=MOST_SCOPES, description="what it may be used for; null: all that its user may do"
    )
    lifetime: Duration | None = Field(default=timedelta(days=90), description="null: it does not expire")


class QuotaPatch(Schema):
    """Limits to set. What is left out stays; null is unlimited, but no `share` is null."""

    devices: Limit = None
    running: Limit = None
    queued: Limit = None
    priority: Annotated[int, Field(ge=-100, le=100)] | None = None
    stored_bytes: Limit = None
    share: Annotated[int, Field(ge=1, le=10_000, description="the part in the devices; without one, 100")] = UNSET

    @property
    def limits(self) -> dict[Resource, int | None]:
        """The limits that were sent."""
        return {Resource(name): value for name, value in self.model_dump(exclude_unset=True).items()}


class SecretValue(Schema):
    """The value of a secret."""

    value: Annotated[str, Field(min_length=1, max_length=32_768)]


class Login(Schema):
    """What a browser sends for a session: a token."""

    token: Annotated[str, Field(min_length=1, max_length=500)]


class CodeLogin(Schema):
    """What a browser on the service's machine may send instead: a login code."""

    code: Annotated[str, Field(min_length=1, max_length=100)]


def _small(document: dict[str, JsonValue]) -> dict[str, JsonValue]:
    size = len(to_json(document))
    if size > MOST_PREFERENCES_BYTES:
        raise ValueError(f"has {size} bytes of JSON: preferences have at most {MOST_PREFERENCES_BYTES}")
    if not _is_exact(document):
        raise ValueError(
            "has an integer of more than 53 bits, which a browser does not keep exactly: write it as a text"
        )
    return document


def _is_exact(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return all(_is_exact(item) for item in value.values())
    if isinstance(value, list):
        return all(_is_exact(item) for item in value)
    return not isinstance(value, int) or abs(value) <= 2**53


class PreferenceChanges(Schema):
    """How a user wants the page to be, by names that only the page knows. Null removes a name."""

    preferences: Annotated[
        dict[str, JsonValue], AfterValidator(_small), Field(json_schema_extra={BOUND_IN_BYTES: MOST_PREFERENCES_BYTES})
    ]


class FileLink(Schema):
    """The file to link to."""

    path: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4000,
            pattern=allowing(
                r"^/v1/(jobs/|models/|usage\?)", "a path that begins with /v1/jobs/, /v1/models/ or /v1/usage?"
            ),
        ),
    ]
    """Its path with its query, as a download asks for it."""


class NewKeep(Schema):
    """What to store of a job's working folder."""

    paths: Annotated[list[KeptPattern], Field(min_length=1, max_length=MOST_KEEP)] = Field(
        description="paths or patterns of files and folders there"
    )


class NewLogCurves(Schema):
    """What to find in the lines that are stored of a job."""

    pattern: MetricPattern = Field(description="as one of `metrics.patterns` of a job spec")


class NewBundleName(Schema):
    """What to call a bundle."""

    name: DataName


class WantedParts(Schema):
    """Parts of a bundle's tar that is to be uploaded."""

    parts: Annotated[list[_Digest], Field(min_length=1, max_length=MOST_PARTS_ASKED)] = Field(
        description="the sha256 of each, in the order of the tar"
    )


class ResumeRequest(Schema):
    """How to resume a job."""

    devices: Devices | None = Field(
        default=None, description="of each node, in place of those that the spec asks for; null: as many as before"
    )


class RetryRequest(Schema):
    """How to retry a job."""

    model_config = {"populate_by_name": True}

    from_: Annotated[str, Field(min_length=1, max_length=100, pattern=NO_CONTROLS)] | None = Field(
        default=None,
        alias="from",
        description="the checkpoint to go on from: `best`, `latest`, `epoch-N`, `step-N` or an id; null: the newest",
    )
    devices: Devices | None = Field(
        default=None, description="of each node, in place of those that the spec asks for; null: as many as before"
    )
    fresh: bool = Field(
        default=False,
        description="whether it begins with the code alone: without folder, files and checkpoints of the job",
    )

    @model_validator(mode="after")
    def _check_fresh(self) -> Self:
        if self.fresh and self.from_ is not None:
            raise ValueError("fresh begins with the code alone, so leave from out")
        return self


class NewModelVersion(Schema):
    """A checkpoint to keep as the next version of a model."""

    name: Annotated[str, Field(pattern=MODEL_NAME)]
    source: Annotated[
        str,
        Field(
            alias="from",
            pattern=allowing(
                r"^(job_[0-9a-f]{32}/[A-Za-z0-9_-]{1,100}|swp_[0-9a-f]{32}/best)$",
                "job_…/REF, where REF is as in checkpoints, or swp_…/best",
            ),
            description="`job_…/REF`; REF is the id of a checkpoint, `best`, `latest`, `epoch-N` or `step-N`. Or "
            "`swp_…/best`",
        ),
    ]
    visibility: Visibility | None = Field(
        default=None, description="of a new model; null: the server's. A model that is there must have the same"
    )


class ModelPatch(Schema):
    """What can be changed of a model."""

    visibility: Visibility


class JobActions(Schema):
    """An action on many jobs: those with these ids, or those that a filter matches."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": ["ids"]}, {"required": ["filter"]}]}}

    action: JobAction
    ids: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=MOST_ACTIONS)] = UNSET
    filter: JobFilter = UNSET
    labels: Annotated[LabelChanges, Field(description="`label` only: labels to set; null removes one")] = UNSET
    now: bool = Field(default=False, description="`cancel` only: kill running jobs without waiting for a checkpoint")
    dry_run: bool = Field(default=False, description="only answer how many jobs match, and what their stop would cost")

    @model_validator(mode="after")
    def _has_one_choice(self) -> Self:
        if len({"ids", "filter"} & self.model_fields_set) != 1:
            raise ValueError("send either `ids` or `filter`")
        return self

    @model_validator(mode="after")
    def _labels_are_for_label(self) -> Self:
        if ("labels" in self.model_fields_set) != (self.action == "label"):
            raise ValueError("send `labels` with the action `label`, and with no other")
        return self

    @model_validator(mode="after")
    def _only_a_cancel_is_forced(self) -> Self:
        if self.now and self.action != "cancel":
            raise ValueError("`now` is only for `cancel`")
        return self


class JobBatch(Schema):
    """Jobs to submit together. Their specs are not looked at yet."""

    jobs: Annotated[list[Any], Field(min_length=1, max_length=MOST_JOBS, description="a job spec each")]
    atomic: bool = Field(
        default=False, description=f"store all jobs or none: {MOST_ATOMIC_JOBS} at most. Otherwise each is its own"
    )

    @model_validator(mode="after")
    def _is_one_transaction(self) -> Self:
        if self.atomic and len(self.jobs) > MOST_ATOMIC_JOBS:
            raise ValueError(f"an atomic batch has at most {MOST_ATOMIC_JOBS} jobs, and this one {len(self.jobs)}")
        return self


def parse_batch(raw: object) -> JobBatch:
    """Returns the batch in `raw` (parsed JSON), whose specs may be anything. Raises InvalidRequest."""
    if isinstance(raw, dict) and len(raw) > _MOST_BATCH_KEYS:
        raise InvalidRequest(
            "the batch is not valid", errors=(FieldError("", "send `jobs`, and `atomic` if you like"),)
        )
    try:
        return JobBatch.model_validate(raw)
    except ValidationError as error:
        raise InvalidRequest("the batch is not valid", errors=field_errors(error, JobBatch)) from None


def parse_request(kind: type[S], raw: object, *, most_values: int = _MOST_VALUES) -> S:
    """Returns the request in `raw` (parsed JSON). Raises InvalidRequest, naming each field.

    `most_values`: the keys and values that it may have; with more, none of them is looked at.
    """
    wrong = unstorable(raw, most_values=most_values)
    if wrong is not None:
        raise InvalidRequest("the request is not valid", errors=(FieldError(*wrong),))
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise InvalidRequest("the request is not valid", errors=field_errors(error, kind)) from None


def parsed_json(body: bytes) -> Any:
    """Parses JSON. Raises InvalidRequest."""
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
