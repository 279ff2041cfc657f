"""The programs of the package torchyard-server. They are started by name, and never imported here."""

import functools
import sys

from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.version import own_version


def argv(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module of torchyard-server, from any folder, whatever lies in it.

    Raises ConfigError if torchyard-server is not installed at the version of torchyard.
    """
    check_installed()
    return [sys.executable, "-P", "-m", module, *arguments]


@functools.cache  # a look takes milliseconds, and each program that is started asks for one
def check_installed() -> None:
    """Raises ConfigError if this is not Linux, or torchyard-server is not installed at the version of torchyard."""
    if sys.platform != "linux":
        raise ConfigError(
            "the service needs Linux (on Windows: WSL). From here, use one on another machine: `torchyard login URL`"
        )
    from importlib.metadata import PackageNotFoundError, version  # takes long, and most commands start no program

    own = own_version()
    try:
        server = version("torchyard-server")
    except PackageNotFoundError:
        raise ConfigError(
            "the service is not installed here, only the client: pip install 'torchyard[server]'"
        ) from None
    if server != own:
        raise ConfigError(
            f"torchyard is {own}, but torchyard-server is {server}: pip install 'torchyard[server]=={own}'"
        )
