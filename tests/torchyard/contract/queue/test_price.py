"""What a stop costs, in words."""

from typing import Any

import pytest

from tests.approved import Approved
from torchyard.contract.queue.price import (
    Kind,
    Stake,
    at_stake,
    device_time,
    price_of_stop,
    price_of_stops,
    saving,
)

MINUTE = 60_000_000


def stake(**changes: Any) -> Stake:
    given: dict[str, Any] = {"kind": "cuda", "device_us": 18 * MINUTE, "steps": 412, "resumes_at": 3000, **changes}
    return Stake(**given)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps": 1, "device_us": 1_000_000},
        {"steps": None},
        {"steps": 0},
        {"steps": 12_000, "resumes_at": None},
        {"steps": 0, "device_us": 999_999},
        {"device_us": 0},
        {"is_training": False, "steps": 9},
        {"is_training": False, "device_us": 0, "resumes_at": None},
        {"steps": None, "resumes_at": None, "has_folder": True},
        {"has_folder": True},
    ],
)
def test_what_is_at_stake(changes: dict[str, Any], approved: Approved) -> None:
    assert at_stake(stake(**changes)) == approved.of_row("at_stake")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, ""),
        (-5, ""),
        (89, "89 CPU-s"),
        (90, "2 CPU-min"),
        (5399, "90 CPU-min"),
        (5400, "1.5 CPU-h"),
        (36_000, "10 CPU-h"),
        (36_000_000_000, "10,000,000 CPU-h"),
    ],
)
def test_device_time_has_the_unit_of_its_size(seconds: int, said: str) -> None:
    assert device_time(seconds * 1_000_000, "cpu") == said


def test_whether_a_job_saves_first_is_said_of_its_kind(approved: Approved) -> None:
    rest = "412 steps (18 GPU-min) are lost; resumes at step 3,000"
    assert price_of_stop(stake(), saving("image-classification", "train")) == approved("price_of_stop", rest=rest)
    assert price_of_stop(stake(), saving("script", None)) == approved("may save first", rest=rest)
    assert price_of_stop(stake(), saving("segmentation", "evaluate")) == f"stops without saving: {rest}"
    killed = price_of_stop(stake(resumes_at=None), saving("segmentation", "train", now=True), ends=True)
    assert killed == approved("killed")
    starting = price_of_stop(stake(is_training=False), saving("segmentation", "train"))
    assert starting == approved("starting")
    saved = price_of_stop(stake(steps=0, device_us=0), saving("script", None), ends=True)
    assert saved == approved("saved")


def test_a_script_without_a_checkpoint_is_not_expected_to_save(approved: Approved) -> None:
    assert price_of_stop(stake(resumes_at=None), "perhaps") == approved("no checkpoint")
    assert price_of_stop(stake(resumes_at=None), "first") == approved("saves first")
    assert price_of_stop(stake(is_training=False, resumes_at=None), "first") == approved("startup")


def test_many_stops_are_summed_by_kind(approved: Approved) -> None:
    both: dict[Kind, int] = {"cuda": 54 * MINUTE, "cpu": 2 * MINUTE}
    assert price_of_stops(0, {}) == approved("price_of_stops")
    assert price_of_stops(1200, both) == approved("jobs run if")
    assert price_of_stops(2, {}) == price_of_stops(2, {}, now=True) == "2 running jobs: nothing is lost yet"
    assert price_of_stops(2, both, now=True) == approved("jobs run killed")
