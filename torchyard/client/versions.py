"""What a client says where the server has another version."""

import httpx2

from torchyard.contract.version import HEADER, own_version, release


def difference(response: httpx2.Response) -> str | None:
    """Returns what to tell the user; None if the server has the client's major and minor version, or does not say."""
    theirs, ours = response.headers.get(HEADER, ""), own_version()
    if not release(theirs) or not release(ours) or release(theirs) == release(ours):
        return None
    return (
        f"this client is Torchyard {ours}, and the server at {_address(response)} is {theirs}: some calls may fail."
        " Install the server's version here"
    )


def lacking(response: httpx2.Response) -> str | None:
    """Returns why a server lacks a call that this client has; None if its version does not explain that."""
    theirs, ours = release(response.headers.get(HEADER, "")), release(own_version())
    if not theirs or not ours or theirs == ours:
        return None
    older = theirs < ours
    return (
        f"Torchyard {own_version()}, as this client is, has {response.request.method} {response.request.url.path}, but"
        f" the server at {_address(response)} is {'older' if older else 'newer'}, {response.headers[HEADER]}:"
        f" update {'the server, or use a client of its version' if older else 'this client'}"
    )


def _address(response: httpx2.Response) -> str:
    url = response.request.url
    return f"{url.scheme}://{url.netloc.decode()}"
