"""The parts of a stored spec that the service reads."""

from datetime import timedelta
from typing import Any

from pydantic import ValidationError
import pytest

from store.db import stored_spec
from store.db.stored_spec import StoredCheckpointPolicy, StoredSpec
from torchyard.contract.spec.spec import parse_spec

SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}


def test_an_empty_stored_spec_has_the_defaults() -> None:
    assert StoredSpec.model_validate(parse_spec(SCRIPT).model_dump(mode="json")) == StoredSpec()


def test_the_values_of_a_stored_spec_are_read() -> None:
    asked = {"checkpoint": {"keep_last": 3, "keep_best": 2, "mode": "max", "monitor": "val/iou"}, "preemptible": True}
    stored = parse_spec(SCRIPT | asked | {"max_restarts": 7, "stop_grace": "2m"}).model_dump(mode="json")
    checkpoint = StoredCheckpointPolicy(keep_last=3, keep_best=2, mode="max", monitor="val/iou")
    expected = StoredSpec(checkpoint=checkpoint, preemptible=True, max_restarts=7, stop_grace=timedelta(minutes=2))
    assert StoredSpec.model_validate(stored) == expected


def test_unknown_keys_are_ignored_and_missing_keys_have_defaults() -> None:
    stored = {"checkpoint": {"keep_last": 1, "keep_warm": True}, "max_restarts": 0, "launcher": "warm"}
    assert StoredSpec.model_validate(stored) == StoredSpec(
        checkpoint=StoredCheckpointPolicy(keep_last=1), max_restarts=0
    )


def test_resources_of_a_newer_version_are_refused() -> None:
    assert stored_spec.parse_resources({"devices_per_node": 2}).devices_per_node == 2
    with pytest.raises(ValidationError):
        stored_spec.parse_resources({"devices_per_node": 2, "topology": "ring"})
