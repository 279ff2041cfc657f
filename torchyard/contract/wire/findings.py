"""Turns what pydantic finds in a request, a spec or a file into errors of its fields."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from torchyard.contract.errors import FieldError
from torchyard.contract.wire import wording

_MOST_SAID = 50
"""Findings of which something is said, at most. What comes after them is counted, and costs nothing."""
_MOST_COMPARED = 10
"""The findings among which unknown keys are compared with the known ones: each may take 0.4 ms."""
_KEY = "[key]"
"""How pydantic marks that the name of an entry is wrong, and not its value."""
_UNKNOWN_KEY = "extra_forbidden"
_UNKNOWN_TAG = frozenset({"union_tag_invalid", "union_tag_not_found"})


@dataclass(frozen=True)
class _Place:
    """Where a finding is. `path` has no names of a union's branches."""

    path: tuple[str, ...] = ()
    union: int | None = None
    """How many parts of the path lead to the innermost union."""
    owner: Any = None
    """The type of the object that has the last part of the path as its key; None if it is not known."""
    kind: Any = None
    """The type of what is there."""
    is_key: bool = False

    @property
    def name(self) -> str:
        return ".".join(part[:200] for part in self.path)


def field_errors(error: ValidationError, kind: Any) -> tuple[FieldError, ...]:
    """Returns what is wrong with each field of a `kind`: a model, or a union of models with their tags."""
    return errors_of(error.errors(include_url=False, include_input=False), kind)


def errors_of(findings: Sequence[Any], kind: Any = None) -> tuple[FieldError, ...]:
    """Returns what the first `findings` of pydantic say of each field, and how many more there are.

    Without a `kind`, unknown keys are not compared.
    """
    places = [(_place(kind, item["loc"]), item) for item in findings[:_MOST_SAID]]
    places[_MOST_COMPARED:] = [(replace(place, owner=None), item) for place, item in places[_MOST_COMPARED:]]
    grouped = groupby(places, key=lambda pair: pair[0].path[: pair[0].union] if pair[0].union is not None else None)
    said = tuple(
        error
        for union, pairs in grouped
        for error in (_of_union([*pairs]) if union is not None else [_error(*pair) for pair in pairs])
    )
    more = len(findings) - _MOST_SAID
    return (*said, FieldError("", f"and {more} more")) if more > 0 else said


def _place(kind: Any, location: Sequence[int | str]) -> _Place:
    place = _Place(kind=kind)
    for part in location:
        members = _members(place.kind)
        if part == _KEY:
            place = _Place(place.path, place.union, is_key=True)
        elif len(members) > 1:
            branch = next((member for member in members if part in _labels(member)), None)
            is_root = not place.path  # of a spec, whose tag says which class is meant
            place = _Place(place.path, None if is_root else len(place.path), kind=branch)
        else:
            owner = members[0] if members else None
            place = _Place((*place.path, str(part)), place.union, owner, _inside(owner, part))
    return place


def _members(kind: Any) -> list[Any]:
    """Returns the types of a union without None, or the one type."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in {Union, UnionType}:
        return [member for item in get_args(kind) if item is not NoneType for member in _members(item)]
    return [] if kind is None else [kind]


def _labels(member: Any) -> set[str]:
    """Returns how pydantic may name this branch of a union."""
    if not _is_model(member):
        return set()
    tag = member.model_fields.get("trainer")
    tags = get_args(tag.annotation) if tag is not None and get_origin(tag.annotation) is Literal else ()
    return {member.__name__, *tags}


def _inside(owner: Any, part: int | str) -> Any:
    if _is_model(owner):
        field = owner.model_fields.get(str(part))
        return None if field is None else field.annotation
    arguments = get_args(owner)
    return arguments[-1] if arguments and get_origin(owner) in {list, dict} else None


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _error(place: _Place, finding: Any) -> FieldError:
    if finding["type"] in _UNKNOWN_TAG:
        return _of_tag(place, finding["ctx"])
    said = _words(place, finding)
    return FieldError(place.name, f"its name {said}" if place.is_key else said)


def _of_tag(place: _Place, context: Any) -> FieldError:
    name, tags = context["discriminator"].strip("'"), _tags(place.kind)
    near = wording.nearest(str(context.get("tag", "")), tags)
    meant = f"; did you mean {near}?" if near else ""
    return FieldError(".".join((*place.path, name)), f"must be {wording.listed(tags)}{meant}")


def _tags(kind: Any) -> list[str]:
    return [tag for member in _members(kind) for tag in get_args(member.model_fields["trainer"].annotation)]


def _words(place: _Place, finding: Any) -> str:
    if finding["type"] == _UNKNOWN_KEY and _is_model(place.owner):
        fields = place.owner.model_fields.items()
        return wording.unknown_key(place.path[-1], [field.alias or name for name, field in fields])
    if finding["type"] == "is_instance_of" and (values := _values(place.kind)):
        return f"must be {wording.listed(values)}"
    return wording.words(finding)


def _values(kind: Any) -> list[str]:
    """Returns the values of an enumeration."""
    enums = [member for member in _members(kind) if isinstance(member, type) and issubclass(member, Enum)]
    return [item.value for enum in enums for item in enum]


def _of_union(pairs: list[tuple[_Place, Any]]) -> list[FieldError]:
    """Joins what the branches of a union say: of the branch that the value was meant for, if its own fields are wrong.

    Otherwise the value may be what any of them says.
    """
    inner = [pair for pair in pairs if len(pair[0].path) > (pair[0].union or 0)]
    if inner:
        return [_error(*pair) for pair in inner]
    says = [_words(*pair).removeprefix("must be ") for pair in pairs]
    return [FieldError(pairs[0][0].name, f"must be {' or '.join(dict.fromkeys(says))}")]
