"""Reads which server `torchyard up` serves from a folder: only what a live one of this user has written counts."""

from pathlib import Path

from torchyard.client.logins import Login, parse
from torchyard.contract.errors import ConfigError, ServerUnreachable
from torchyard.host import privatefile
from torchyard.host.datadir import SERVER_FILE

MOST_BYTES = 64 << 10
"""Of a `server.json`. One has less than a thousand."""


def read_server(data_dir: Path) -> Login | None:
    """Returns the address and the token of the service that runs on this data directory; None if none is named there.

    Whoever made the folder could have put the file there, to be sent this user's code. So it counts only if it is this
    user's alone, and if the `torchyard up` that wrote it still holds it. Raises ConfigError and ServerUnreachable.
    """
    path = data_dir / SERVER_FILE
    try:
        with privatefile.open_own(path) as file:
            held, content = privatefile.is_held(file), file.read(MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(
            f"{path} is not used: {error.strerror}. If it came with the folder, remove it; `torchyard up` writes one"
            " that is yours alone. `torchyard login URL` and TORCHYARD_URL name another server"
        ) from None
    if not held:
        raise ServerUnreachable(
            f"{path} is not used: no `torchyard up` that runs has written it. Start it here with `torchyard up`, or"
            " name another server with `torchyard login URL` or TORCHYARD_URL"
        )
    return parse(Login, content, path=path)
