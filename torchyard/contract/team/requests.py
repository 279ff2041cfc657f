"""The bodies of requests about users, tokens, secrets, sessions and quotas."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue
from pydantic_core import to_json

from torchyard.contract.team.codes import CODE_SECRET, CodeKind
from torchyard.contract.team.roles import Resource, Role, Scope, Visibility
from torchyard.contract.wire.schema import BOUND_IN_BYTES, NO_CONTROLS, UNSET, Duration, Schema
from torchyard.contract.wire.wording import allowing

USER_NAME = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$",
    "1 to 64 letters, digits, `.`, `_`, `@` and `-`, of which the first is a letter or a digit",
)
UserName = Annotated[str, Field(pattern=USER_NAME)]
MOST_PREFERENCES_BYTES = 32_768
"""The most bytes of a user's preferences, as JSON."""
MOST_WORKER_USERS = 1000
"""The most users whose jobs a worker takes, where it takes only theirs."""
MOST_SCOPES = 100
"""The most scopes that are named for a token, equal ones included."""
_EXEC = "whether the session gets the scope `jobs:exec`, if the token has it"
TokenName = Annotated[str, Field(min_length=1, max_length=100, pattern=NO_CONTROLS)]


def _role(value: Any) -> Any:
    return Role(value) if isinstance(value, str) and value in set(Role) else value


def _scopes(value: Any) -> Any:
    return [_scope(item) for item in value] if isinstance(value, list) else value


def _scope(value: Any) -> Any:
    return Scope(value) if isinstance(value, str) and value in set(Scope) else value


Limit = Annotated[int, Field(ge=0, lt=2**62)] | None
RoleName = Annotated[Role, BeforeValidator(_role)]


WorkerUserNames = Annotated[list[UserName], Field(max_length=MOST_WORKER_USERS)] | None


class WorkerUsers(Schema):
    """The users whose jobs a worker takes."""

    users: WorkerUserNames = Field(description="users whose jobs the worker takes; null: all users")


class NewUser(Schema):
    """A user to add."""

    name: UserName
    role: RoleName = Role.MEMBER


class UserPatch(Schema):
    """Changes of a user. Omitted or null fields stay."""

    role: RoleName | None = None
    disabled: bool | None = None
    jobs: Literal["keep", "cancel"] = Field(default="keep", description="what to do with the jobs of a disabled user")


class NewToken(Schema):
    """A token to make."""

    name: TokenName = "token"
    user: UserName | None = Field(
        default=None, description="user of the token; only an administrator may name another user"
    )
    scopes: Annotated[list[Scope], BeforeValidator(_scopes)] | None = Field(
        default=None,
        max_length=MOST_SCOPES,
        description="scopes of the token; null: the scopes of the request's token, without `jobs:exec`",
    )
    lifetime: Duration | None = Field(
        default=timedelta(days=90), description="validity, such as `90d`; null: the token does not expire"
    )


class QuotaPatch(Schema):
    """Limits to set. Omitted limits stay; null is unlimited. `share` cannot be null."""

    devices: Limit = None
    running: Limit = None
    queued: Limit = None
    priority: Annotated[int, Field(ge=-100, le=100)] | None = None
    stored_bytes: Limit = None
    share: Annotated[int, Field(ge=1, le=10_000, description="fair-share weight; default: 100")] = UNSET

    @property
    def limits(self) -> dict[Resource, int | None]:
        """The limits that were sent."""
        return {Resource(name): value for name, value in self.model_dump(exclude_unset=True).items()}


class SecretValue(Schema):
    """The value of a secret."""

    value: Annotated[str, Field(min_length=1, max_length=32_768)]


class Login(Schema):
    """A login with a token."""

    token: Annotated[str, Field(min_length=1, max_length=500)]
    exec: bool = Field(default=False, description=_EXEC)


class CodeLogin(Schema):
    """A login with a one-time code, from a browser on the service's machine."""

    code: Annotated[str, Field(min_length=1, max_length=100)]
    exec: bool = Field(default=False, description=_EXEC)


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
    """Preferences for the page, by name. Null removes a name."""

    preferences: Annotated[
        dict[str, JsonValue], AfterValidator(_small), Field(json_schema_extra={BOUND_IN_BYTES: MOST_PREFERENCES_BYTES})
    ]


class NewCode(Schema):
    """A join code to make, for a worker or a user of this name."""

    kind: CodeKind
    name: UserName = Field(description="name of the worker or the user")
    users: WorkerUserNames = Field(default=None, description="users whose jobs the worker takes; null: all users")


class Joining(Schema):
    """The request of a machine that joins with a code."""

    code: Annotated[str, Field(pattern=allowing(CODE_SECRET, "the last 32 characters of a code"))]
    version: Annotated[str, Field(min_length=1, max_length=70)] = Field(
        description="version of Torchyard on the machine"
    )
    key: Annotated[str, Field(pattern=allowing(r"^[A-Za-z0-9_-]{43}$", "43 letters, digits, `-` and `_`"))] = Field(
        description="a random key of the machine. With the same key, the machine may repeat the request if the "
        "answer was lost"
    )


class NewView(Schema):
    """A view to save."""

    name: Annotated[str, Field(min_length=1, max_length=60, pattern=NO_CONTROLS)]
    query: Annotated[str, Field(max_length=8000, pattern=NO_CONTROLS)] = Field(
        description="query of the page's address, such as `state=failed&sort=name`"
    )
    visibility: Visibility = Field(default="private", description="`team`: all users may open it; `private`: only you")


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
