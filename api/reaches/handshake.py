"""Proves to each other, on the WebSocket of a meeting, that an end and the service know its secret."""

import asyncio
from dataclasses import dataclass
import json
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from api.auth.access import Access
from store.reaches import meetings
from store.reaches.facts import End, MeetingFacts
from torchyard.contract.reach.proof import SECRET_BYTES, new_nonce, prove, proves

PROOF_S = 10.0
"""How long an end may take to prove itself."""
_LONGEST_PROOF = 1000


class NotProved(Exception):
    """The end does not know the secret of the meeting, or there is no such meeting: nobody is told which."""


@dataclass(frozen=True)
class Proved:
    """An end that has shown that it knows the secret, and waits for the service to show that."""

    facts: MeetingFacts
    end: End
    nonces: dict[str, str]

    @property
    def answer(self) -> str:
        """The service's own proof. Send it once the other end has come."""
        proof = prove(
            bytes.fromhex(self.facts.secret),
            side="service",
            reach=self.facts.reach_id,
            meeting=self.facts.meeting,
            **self.nonces,
        )
        return json.dumps({"proof": proof})


async def ask(websocket: WebSocket, access: Access, reach_id: str, *, meeting: int, end: End) -> Proved:
    """Asks an end for its proof, once. Raises NotProved, and Unavailable."""
    nonce = new_nonce()
    try:
        async with asyncio.timeout(PROOF_S):
            await websocket.send_text(json.dumps({"nonce": nonce}))
            sent = _parsed(await websocket.receive())
    except (TimeoutError, WebSocketDisconnect, RuntimeError):
        raise NotProved from None
    facts = await access.at_once(_find, access, reach_id, meeting)
    # A meeting that does not exist takes as long as a wrong proof.
    secret = bytes.fromhex(facts.secret) if facts is not None else bytes(SECRET_BYTES)
    nonces = {"service_nonce": nonce, "end_nonce": sent["nonce"]}
    is_right = proves(sent["proof"], secret, side=end, reach=reach_id, meeting=meeting, **nonces)
    if facts is None or not is_right:
        raise NotProved
    return Proved(facts, end, nonces)


def _find(access: Access, reach_id: str, meeting: int) -> MeetingFacts | None:
    with access.store.read() as session:
        return meetings.find_awaited(session, reach_id, meeting=meeting)


def _parsed(message: Any) -> dict[str, str]:
    """Returns nonce and proof. Raises NotProved for anything else."""
    text = message.get("text")
    if not isinstance(text, str) or len(text) > _LONGEST_PROOF:
        raise NotProved
    try:
        sent = json.loads(text)
    except (ValueError, RecursionError):
        raise NotProved from None
    if not isinstance(sent, dict) or not all(isinstance(sent.get(name), str) for name in ("nonce", "proof")):
        raise NotProved
    return {name: sent[name] for name in ("nonce", "proof")}
