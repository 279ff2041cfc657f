"""What is read of a stored spec."""

from datetime import timedelta
from typing import Any

from pydantic import ValidationError
import pytest

from store.db import stored_spec
from store.db.stored_spec import StoredCheckpointPolicy, StoredSpec
from torchyard.contract.spec import parse_spec

SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}


def test_a_spec_that_leaves_all_out_has_the_defaults_of_the_spec() -> None:
    assert StoredSpec.model_validate(parse_spec(SCRIPT).model_dump(mode="json")) == StoredSpec()


def test_what_the_user_asked_for_is_read() -> None:
    asked = {"checkpoint": {"keep_last": 3, "keep_best": 2, "mode": "max", "monitor": "val/iou"}, "preemptible": True}
    stored = parse_spec(SCRIPT | asked | {"max_restarts": 7, "stop_grace": "2m"}).model_dump(mode="json")
    checkpoint = StoredCheckpointPolicy(keep_last=3, keep_best=2, mode="max", monitor="val/iou")
    expected = StoredSpec(checkpoint=checkpoint, preemptible=True, max_restarts=7, stop_grace=timedelta(minutes=2))
    assert StoredSpec.model_validate(stored) == expected


def test_keys_of_a_newer_version_are_ignored_and_those_that_an_older_one_left_out_have_defaults() -> None:
    stored = {"checkpoint": {"keep_last": 1, "keep_warm": True}, "max_restarts": 0, "launcher": "warm"}
    assert StoredSpec.model_validate(stored) == StoredSpec(
        checkpoint=StoredCheckpointPolicy(keep_last=1), max_restarts=0
    )


def test_resources_that_only_a_newer_version_knows_are_refused() -> None:
    assert stored_spec.parse_resources({"devices_per_node": 2}).devices_per_node == 2
    with pytest.raises(ValidationError):
        stored_spec.parse_resources({"devices_per_node": 2, "topology": "ring"})
