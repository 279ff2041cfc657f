"""What the hosts of a pool share: one folder, so that what one unpacks or installs is read by others."""

from dataclasses import replace

import pytest

from tests.worker.attempts.fixture import SimulatedRunnerFixture


@pytest.mark.parametrize("in_pool", [False, True])
def test_what_is_unpacked_and_installed_is_shared_in_a_pool_alone(
    simulated: SimulatedRunnerFixture, in_pool: bool
) -> None:
    context = replace(simulated.context, pool=pytest.fail if in_pool else None)
    assert (context.bundles.shared, context.packages.shared) == (in_pool, in_pool)
