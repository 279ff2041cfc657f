"""What a service's token must be, by who can reach the service."""

import pytest

from tests.approved import Approved
from torchyard.contract.errors import ConfigError
from torchyard.host.listening import check_token, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_only_this_machine_reaches_loopback(host: str) -> None:
    assert is_loopback(host)
    check_token("short", host=host, source="here")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "box.example.com"])
def test_a_host_that_others_reach_needs_a_long_token(host: str, approved: Approved) -> None:
    assert not is_loopback(host)
    check_token("x" * 32, host=host, source="TORCHYARD_TOKEN")
    with pytest.raises(ConfigError) as caught:
        check_token("x" * 31, host=host, source="TORCHYARD_TOKEN")
    assert str(caught.value) == approved.of_row("message")
    assert host in caught.value.message and "xxx" not in caught.value.message
