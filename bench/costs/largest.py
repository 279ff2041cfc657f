"""Makes the largest value that a JSON schema allows, and finds what the schema does not limit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
import json
import re
from typing import Any

from torchyard.contract.wire.schema import BOUND_IN_BYTES

_parser: Any = re._parser  # pyright: ignore[reportAttributeAccessIssue] the one reader of patterns that Python has
_ENDLESS = int(_parser.MAXREPEAT)
_LONGEST = 100_000
"""The length of a text without a limit."""
_DEEPEST = 8
_NUMBER = 2**31 - 1

Schema = Mapping[str, Any]
PARSED_BY_US = frozenset({"date-time", "binary"})
"""Formats whose length a parser bounds, or that are streamed."""


@dataclass(frozen=True)
class Unbounded:
    """A text, list or object for which the schema says no maximum."""

    path: str
    kind: str


@dataclass(frozen=True)
class Document:
    """An OpenAPI document: its schemas refer to each other."""

    document: Mapping[str, Any]

    def operations(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yields method, path and operation of each."""
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                yield method, path, operation

    def parameters(self, operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return [self._resolved(parameter) for parameter in operation.get("parameters", [])]

    def body(self, operation: Mapping[str, Any]) -> Schema | None:
        """Returns the schema of the operation's JSON."""
        content = operation.get("requestBody", {}).get("content", {})
        return content["application/json"]["schema"] if "application/json" in content else None

    def largest(self, schema: Schema, *, room: int, deep: int = 0) -> Any:
        """Returns a value with as many bytes of JSON as the schema admits, but few more than `room`."""
        schema = self._resolved(schema)
        for key in ("oneOf", "anyOf"):
            if key in schema:
                rest = {name: value for name, value in schema.items() if name not in {key, "default"}}
                made = [self.largest(_merged(rest, self._resolved(one)), room=room, deep=deep) for one in schema[key]]
                return max(made, key=_size)
        if choices := [schema["const"]] if "const" in schema else schema.get("enum"):
            return max(choices, key=_size)
        match _kind(schema):
            case "object":
                return self._object(schema, room=room, deep=deep)
            case "array":
                return self._array(schema, room=room, deep=deep)
            case kind:
                return _largest_scalar(schema, kind, room=room)

    def unbounded(self, schema: Schema, path: str = "") -> Iterator[Unbounded]:
        """Yields what has no maximum, below `path`."""
        yield from self._unbounded(schema, path, frozenset())

    def _object(self, schema: Schema, *, room: int, deep: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if deep > _DEEPEST:
            return made
        properties = schema.get("properties", {})
        for name, inner in properties.items():
            share = max(0, room - _size(made)) if name not in schema.get("required", ()) else room
            if share > 100:
                made[name] = self.largest(inner, room=share, deep=deep + 1)
        names, others = _free_keys(schema)
        if others:
            named = longest_text(names or {"maxLength": 100}, room=200)
            for number in range(schema.get("maxProperties", _LONGEST)):
                if _size(made) > room or len(made) > 20_000:
                    break
                value = True if others is True else self.largest(others, room=1000, deep=deep + 1)
                made[_numbered(named, number)] = value
        return made

    def _array(self, schema: Schema, *, room: int, deep: int) -> list[Any]:
        item = schema.get("items", {})
        most = schema.get("maxItems", _LONGEST)
        one = self.largest(item, room=max(200, room // max(1, min(most, 50))), deep=deep + 1)
        count = min(most, room // (_size(one) + 2) + 1)
        return [_numbered(one, number) if isinstance(one, str) else one for number in range(count)]

    def _unbounded(self, schema: Schema, path: str, seen: frozenset[str]) -> Iterator[Unbounded]:
        if "$ref" in schema:
            if schema["$ref"] in seen:
                return
            seen |= {schema["$ref"]}
        schema = self._resolved(schema)
        if BOUND_IN_BYTES in schema:
            return
        for key in ("oneOf", "anyOf", "allOf"):
            for one in schema.get(key, ()):
                yield from self._unbounded(one, path, seen)
        kind = _kind(schema)
        if kind == "string" and not _is_bounded(schema):
            yield Unbounded(path, "text")
        if kind == "array":
            if "maxItems" not in schema:
                yield Unbounded(path, "list")
            yield from self._unbounded(schema.get("items", {}), f"{path}[]", seen)
        if kind == "object":
            yield from self._unbounded_keys(schema, path, seen)

    def _unbounded_keys(self, schema: Schema, path: str, seen: frozenset[str]) -> Iterator[Unbounded]:
        properties = schema.get("properties", {})
        for name, inner in properties.items():
            yield from self._unbounded(inner, f"{path}.{name}" if path else name, seen)
        names, others = _free_keys(schema)
        if others is False:
            return
        if "maxProperties" not in schema or not _is_bounded(names):
            yield Unbounded(path, "keys")
        if others is True or not others:
            yield Unbounded(path, "values")
        else:
            yield from self._unbounded(others, f"{path}{{}}", seen)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            found: Any = self.document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            schema = found
        return schema


def longest_text(schema: Schema, *, room: int) -> str:
    """Returns a text as long as the schema admits, but few characters more than `room`."""
    most = min(schema.get("maxLength", _LONGEST), room)
    if "pattern" in schema:
        return _longest(_parser.parse(schema["pattern"]), most)[:most]
    if schema.get("format") == "date-time":
        return "2026-01-01T00:00:00.000000Z"
    return "x" * most


def _largest_scalar(schema: Schema, kind: str | None, *, room: int) -> Any:
    match kind:
        case "string":
            return longest_text(schema, room=room)
        case "integer" | "number":
            return schema.get("maximum", schema.get("exclusiveMaximum", _NUMBER + 1) - 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return {"key": "x" * min(room, 1000)}


def _merged(one: Schema, other: Schema) -> Schema:
    """Returns a schema with the properties of both."""
    if "properties" in one and "properties" in other:
        return {**one, **other, "properties": {**one["properties"], **other["properties"]}}
    return {**one, **other}


def _free_keys(schema: Schema) -> tuple[Schema, Schema | bool]:
    """Returns the schemas of the names and of the values of keys that are not named. False: there are none."""
    for pattern, values in schema.get("patternProperties", {}).items():
        return {**schema.get("propertyNames", {}), "pattern": pattern}, values
    return schema.get("propertyNames", {}), schema.get("additionalProperties", not schema.get("properties"))


def _size(value: Any) -> int:
    return len(json.dumps(value))


def _kind(schema: Schema) -> str | None:
    kind = schema.get("type")
    if isinstance(kind, list):
        return next((one for one in kind if one != "null"), None)
    return kind or ("object" if "properties" in schema or "additionalProperties" in schema else None)


def _is_bounded(schema: Schema) -> bool:
    if any(key in schema for key in ("maxLength", "enum", "const")) or schema.get("format") in PARSED_BY_US:
        return True
    pattern = schema.get("pattern", "")
    return bool(pattern) and pattern.endswith("$") and _parser.parse(pattern).getwidth()[1] < _ENDLESS


def _longest(parsed: Any, most: int) -> str:
    """Returns a long text that the parsed pattern matches: each repeat has its maximum count."""
    made = ""
    for operation, argument in parsed:
        match str(operation):
            case "LITERAL":
                made += chr(argument)
            case "NOT_LITERAL" | "ANY":
                made += "x"
            case "IN":
                made += _one_of(argument)
            case "MAX_REPEAT" | "MIN_REPEAT":
                one = _longest(argument[2], most)
                made += one * min(argument[1], max(argument[0], (most - len(made)) // max(1, len(one))))
            case "SUBPATTERN":
                made += _longest(argument[3], most)
            case "BRANCH":
                made += max((_longest(one, most) for one in argument[1]), key=len)
            case _:
                pass  # where it begins and ends
    return made


def _one_of(items: Any) -> str:
    (operation, argument), *_ = items
    match str(operation):
        case "RANGE":
            return chr(argument[0])
        case "LITERAL":
            return chr(argument)
        case _:
            return "x"  # not what follows, or a class


def _numbered(text: str, number: int) -> str:
    """Returns another text of the same length for each number."""
    end = f"{number}"
    return text if len(end) > len(text) else text[: len(text) - len(end)] + end
