"""What a spec asks for beyond the maximums of a service is refused by name, and what it leaves open is cut."""

from datetime import timedelta

import pytest

from tests.torchyard.contract.specs import IMAGES, SCRIPT
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.maximums import Maximums, within
from torchyard.contract.spec.spec import SPEC, parse_spec

HOUR = Maximums(stop_grace=timedelta(hours=1), idle_timeout=timedelta(hours=1))


@pytest.mark.parametrize("key", ["stop_grace", "idle_timeout"])
@pytest.mark.parametrize("value", ["61m", "3650d"])
def test_more_than_the_maximum_is_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        within(parse_spec(SCRIPT | {key: value}), HOUR)
    (found,) = caught.value.errors
    says = f"must be at most 1h, the maximum of this service (TORCHYARD_MAX_{key.upper()})"
    assert (found.field, found.message) == (key, says)


def test_both_are_named_at_once() -> None:
    with pytest.raises(InvalidSpec) as caught:
        within(parse_spec(SCRIPT | {"stop_grace": "2h", "idle_timeout": "2h"}), HOUR)
    assert [error.field for error in caught.value.errors] == ["stop_grace", "idle_timeout"]


def test_a_spec_within_the_maximums_stays_as_it_is() -> None:
    for spec in (IMAGES, SCRIPT | {"stop_grace": "60m", "idle_timeout": "60m"}, SCRIPT | {"stop_grace": "0s"}):
        timeout = None if "idle_timeout" not in spec else timedelta(hours=1)
        maximums = Maximums(stop_grace=timedelta(hours=1), idle_timeout=timeout)
        assert within(parse_spec(spec), maximums) == parse_spec(spec)


@pytest.mark.parametrize("given", [{}, {"idle_timeout": None}])
def test_a_spec_without_them_gets_the_maximums(given: dict[str, None]) -> None:
    ten = timedelta(seconds=10)
    cut = within(parse_spec(SCRIPT | given), Maximums(stop_grace=ten, idle_timeout=timedelta(minutes=5)))
    assert cut == parse_spec(SCRIPT | {"stop_grace": "10s", "idle_timeout": "5m"})
    assert parse_spec(SPEC.dump_python(cut, mode="json")) == cut


def test_a_job_on_cpu_slots_gets_no_idle_timeout() -> None:
    spec = parse_spec(SCRIPT | {"resources": {"device": "cpu"}})
    assert within(spec, HOUR) == spec
