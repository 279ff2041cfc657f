"""The two ends of a reach as WebSockets of a test, which prove themselves as the programs do."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
import json
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from torchyard.contract.reach.proof import Side, new_nonce, prove, proves

DEADLINE_S = 60.0


def open_socket(url: str, opened: dict[str, Any], end: Side, **more: Any) -> ClientConnection:
    """Opens the WebSocket of a meeting. `opened`: the answer that named it."""
    address = f"{url.replace('http', 'ws', 1)}{opened['url']}&end={end}"
    usual: dict[str, Any] = {"open_timeout": DEADLINE_S, "close_timeout": DEADLINE_S}
    return connect(address, proxy=None, compression=None, **usual | more)


def send_proof(socket: ClientConnection, opened: dict[str, Any], end: Side, **changed: Any) -> dict[str, str]:
    """Answers the nonce of the service, and returns both nonces. `changed`: what the proof is of instead."""
    nonce = json.loads(socket.recv(timeout=DEADLINE_S))["nonce"]
    own = new_nonce()
    known: dict[str, Any] = {
        "side": end,
        "reach": opened["id"],
        "meeting": opened["meeting"],
        "service_nonce": nonce,
        "end_nonce": own,
    }
    proof = prove(bytes.fromhex(opened["secret"]), **known | changed)
    socket.send(json.dumps({"nonce": own, "proof": proof}))
    return {"service_nonce": nonce, "end_nonce": own}


def await_other(socket: ClientConnection, opened: dict[str, Any], nonces: dict[str, str]) -> None:
    """Waits until the service says, with its proof, that the other end has come."""
    proof = json.loads(socket.recv(timeout=DEADLINE_S))["proof"]
    secret, reach, meeting = bytes.fromhex(opened["secret"]), opened["id"], opened["meeting"]
    assert proves(proof, secret, side="service", reach=reach, meeting=meeting, **nonces)


@contextmanager
def met(
    opened: dict[str, Any], *, client: str, worker: str, first: Side = "client"
) -> Generator[tuple[ClientConnection, ClientConnection]]:
    """Yields client and worker, which have met. `client` and `worker`: the URLs of the API for each."""
    urls = {"client": client, "worker": worker}
    order: tuple[Side, ...] = ("client", "worker") if first == "client" else ("worker", "client")
    with ExitStack() as stack:
        sockets = {end: stack.enter_context(open_socket(urls[end], opened, end)) for end in order}
        nonces = {end: send_proof(sockets[end], opened, end) for end in order}
        for end in order:
            await_other(sockets[end], opened, nonces[end])
        yield sockets["client"], sockets["worker"]


def code_of_close(socket: ClientConnection) -> int:
    """Reads until the service closes the WebSocket, and returns the code with which it does."""
    with pytest.raises(ConnectionClosed) as error:
        while True:
            socket.recv(timeout=DEADLINE_S)
    assert error.value.rcvd is not None
    return error.value.rcvd.code
