"""What FastAPI cannot see by itself: the body of a submission, and the shape of every error."""

from typing import Any

from api.problems import MEDIA_TYPE
from torchyard.spec import SPEC
from torchyard.views import Problem

_REFERENCE = "#/components/schemas/{model}"
_SENT = "#/components/schemas/{model}-Sent"
"""Of a spec as it is sent, where defaults may be left out; the answer's spec has them all."""

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An RFC 9457 problem",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model="Problem")}}},
    }
}

SPEC_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model="JobSpec-Sent")}}},
    }
}


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """`document` with the schemas that `PROBLEMS` and `SPEC_BODY` refer to."""
    spec = SPEC.json_schema(mode="validation", ref_template=_SENT)
    schemas: dict[str, Any] = document["components"]["schemas"]
    schemas |= {f"{name}-Sent": schema for name, schema in spec.pop("$defs").items()}
    schemas["JobSpec-Sent"] = spec
    schemas["Problem"] = Problem.model_json_schema(mode="serialization", ref_template=_REFERENCE)
    return document
