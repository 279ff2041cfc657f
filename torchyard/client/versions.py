"""What a client says where the server has another version."""

from torchyard.contract.wire.version import own_version, release


def difference(theirs: str, address: str) -> str | None:
    """Returns what to tell the user of a server at `address` of the version `theirs`.

    None if it has the client's major and minor version, or does not say.
    """
    ours = own_version()
    if not release(theirs) or not release(ours) or release(theirs) == release(ours):
        return None
    return (
        f"this client is Torchyard {ours}, and the server at {address} is {theirs}: some calls may fail."
        " Install the server's version here"
    )


def lacking(theirs: str, call: str, address: str) -> str | None:
    """Returns why a server lacks a call, such as `GET /v1/jobs`; None if its version does not explain that."""
    ours = own_version()
    if not release(theirs) or not release(ours) or release(theirs) == release(ours):
        return None
    older = (release(theirs) or ()) < (release(ours) or ())
    return (
        f"Torchyard {ours}, as this client is, has {call}, but"
        f" the server at {address} is {'older' if older else 'newer'}, {theirs}:"
        f" update {'the server, or use a client of its version' if older else 'this client'}"
    )
