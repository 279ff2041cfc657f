"""What all views share, and the problem that answers an error."""

from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from torchyard.contract.errors import Conflict, FieldError, TorchyardError
from torchyard.contract.wire.codec import json_number

T = TypeVar("T")


_MOST_ERRORS = 50
_set = object.__setattr__  # a view is frozen


class View(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)  # most programs use few of the views

    @classmethod
    def trusted(cls, **values: Any) -> Self:
        """Returns the view of values of all its fields, each of its type, without a look at them.

        It is what `model_construct` returns, which takes five times as long for a view of many fields.
        """
        view = cls.__new__(cls)
        _set(view, "__dict__", values)
        _set(view, "__pydantic_fields_set__", {*values})
        _set(view, "__pydantic_extra__", None)
        _set(view, "__pydantic_private__", None)
        return view


Number = Annotated[
    float,
    BeforeValidator(lambda value: float(value) if isinstance(value, str) else value),
    PlainSerializer(json_number, return_type=float | Literal["NaN", "Infinity", "-Infinity"]),
]
"""A float in JSON: NaN and infinities are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`."""


class Page(View, Generic[T]):
    """One page of a list. Send `next` as `?after=` to get the following page."""

    data: list[T]
    has_more: bool = False
    next: str | None = None


def shown(errors: tuple[FieldError, ...]) -> list[FieldError]:
    """Returns the first of the errors, and how many more there are."""
    more = len(errors) - _MOST_ERRORS
    if more <= 1:  # the last one may say itself how many more there are
        return [*errors]
    return [*errors[:_MOST_ERRORS], FieldError("", f"and {more} more")]


class Problem(View):
    """An RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[FieldError] = []
    received: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Received bytes of an upload: continue there. Only in a `conflict`."""

    @classmethod
    def of(cls, error: TorchyardError, *, request_id: str) -> Self:
        return cls(
            type=f"urn:torchyard:problem:{error.code}",
            title=error.title,
            status=error.status,
            detail=error.message,
            code=error.code,
            request_id=request_id,
            errors=shown(error.errors),
            received=error.received if isinstance(error, Conflict) else None,
        )
