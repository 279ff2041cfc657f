"""Who can reach a service by the address on which it listens, and what its token must be then."""

import ipaddress

from torchyard.contract.errors import ConfigError

_SHORTEST_TOKEN = 32


def is_loopback(host: str) -> bool:
    """Whether a server that listens on `host` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_token(token: str, *, host: str, source: str) -> None:
    """Raises ConfigError if other machines can reach `host` and the token is short. `source`: where it was read."""
    if len(token) < _SHORTEST_TOKEN and not is_loopback(host):
        raise ConfigError(
            f"the token in {source} has {len(token)} characters: to listen on {host}, which other machines can reach,"
            f" it needs {_SHORTEST_TOKEN} or more. Make one:"
            " python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
