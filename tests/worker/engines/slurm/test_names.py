"""The names of jobs in Slurm, which are the keys of attempts."""

import pytest

from worker.engines.slurm.names import Names
from worker.host.attempt_key import AttemptKey

KEY = AttemptKey("job_" + "0a" * 16, 3)
NAMES = Names("svc", "gpu")


def test_a_name_tells_service_pool_job_attempt_and_claim() -> None:
    name = NAMES.of(KEY, claimed_at=17)
    assert NAMES.key_of(name) == KEY
    assert len(name) <= 100
    others = [NAMES.of(KEY, claimed_at=18), Names("svc", "cpu").of(KEY, claimed_at=17)]
    assert len({name, Names("other", "gpu").of(KEY, claimed_at=17), *others}) == 4


@pytest.mark.parametrize("other", [Names("svc", "cpu"), Names("other", "gpu")])
def test_the_names_of_other_services_and_pools_are_none_of_ours(other: Names) -> None:
    assert NAMES.key_of(other.of(KEY, claimed_at=17)) is None


@pytest.mark.parametrize("name", ["", "ty-doctor-0123456789abcdef", "train", "ty-" + "a" * 12, "../ty", "TY-" * 40])
def test_a_name_of_another_form_is_nobodys(name: str) -> None:
    assert NAMES.key_of(name) is None


@pytest.mark.parametrize("job_id", ["job_x; rm -rf /", "job_--partition=low", "job_" + "g" * 32, "", "job_" + "A" * 32])
def test_a_strange_job_has_no_name(job_id: str) -> None:
    with pytest.raises(ValueError, match="cannot be named"):
        NAMES.of(AttemptKey(job_id, 1), claimed_at=1)
