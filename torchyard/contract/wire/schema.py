"""The base of all that a user may send: strict types, no unknown keys, no infinities, no control bytes."""

from datetime import timedelta
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, from_json

from torchyard.contract.errors import FieldError, InvalidRequest
from torchyard.contract.wire.findings import field_errors
from torchyard.contract.wire.text import LONGEST_URL, METRIC_KEY, unstorable
from torchyard.contract.wire.units import format_duration, parse_duration
from torchyard.contract.wire.wording import allowing

BUNDLE_PATTERN = "bundle:sha256:[0-9a-f]{64}"
"""The URL of a bundle, as a pattern's part."""
BOUND_IN_BYTES = "x-maxBytes"
"""The key of a JSON schema that bounds the bytes of a value whose keys are free."""
NO_NUL = allowing(r"^[^\x00]*$", "a text without NUL")
NO_CONTROLS = allowing(r"^[^\x00-\x1f\x7f]*$", "a text without control characters")
_MOST_VALUES = 2500
"""The most keys and values in a request: each may cost an error message. `MOST_ACTIONS` ids are fewer."""
UNSET: Any = Field(default_factory=lambda: None, validate_default=False)
"""The default of a key that may be left out, but not be null."""


class Schema(BaseModel):
    """A strict model: `1` is not a boolean, `"3"` is not a number, and an unknown key is an error that names it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Returns itself, as nothing changes it. Pydantic copies the default of a key for each model that has it."""
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(core)
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        for name, shown in handler.resolve_ref_schema(found).get("properties", {}).items():
            default = fields[name].default
            if isinstance(default, timedelta):  # pydantic writes the ISO form, which a duration's pattern refuses
                shown["default"] = format_duration(default)
        return found


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,9}[smhd]$", "examples": ["90s", "15m", "24h", "7d"]}),
]


def _or_auto(value: Any) -> timedelta | Literal["auto"]:
    return "auto" if value == "auto" else parse_duration(value)


AutoDuration = Annotated[
    timedelta | Literal["auto"],
    BeforeValidator(_or_auto),
    PlainSerializer(lambda value: value if value == "auto" else format_duration(value), return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^(auto|[0-9]{1,9}[smhd])$", "examples": ["auto", "15m"]}),
]
"""A duration, or `auto`."""


_BUNDLE_OR_FILE = allowing(
    rf"^({BUNDLE_PATTERN}|file:///.+)$", "bundle:sha256:… or file:///… (`torchyard data push DIR` uploads a folder)"
)
BundleOrFile = Annotated[str, Field(pattern=_BUNDLE_OR_FILE, max_length=LONGEST_URL)]
"""The URL of a bundle that the user uploaded, or of what the worker's host has."""

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]

MetricKey = Annotated[
    str, Field(min_length=1, max_length=200, pattern=allowing(METRIC_KEY, "a text without control characters"))
]
"""The name of a metric or of a class: no control characters."""

S = TypeVar("S", bound=Schema)


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
