"""Masks the values of TORCHYARD_JOB_VARIABLES in the logs, errors and events of a job."""

import pytest

from tests.worker.attempts.fixture import SimulatedRunnerFixture
from torchyard.contract.states import JobState

ADDRESS = "http://ada:hunter22@proxy.example:3128"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs before the attempt's context is made."""
    monkeypatch.setenv("TORCHYARD_JOB_VARIABLES", "HTTPS_PROXY")
    monkeypatch.setenv("HTTPS_PROXY", ADDRESS)
    monkeypatch.setenv("NOT_NAMED", "a value that no list names")


def test_the_values_of_the_operators_variables_are_masked_in_logs(
    variables: None, simulated: SimulatedRunnerFixture
) -> None:
    attempt = simulated.start_ranks()
    simulated.write_log(f"uses {ADDRESS}\na value that no list names\n")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.lines() == ["uses ***", "a value that no list names"]
