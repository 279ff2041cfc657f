"""A receiver of webhooks, and what it shows: each message at least once, always with one id and one body."""

from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import threading
from typing import cast

from standardwebhooks import Webhook

from torchyard.client import Client
from torchyard.contract.notifications.kinds import DIGEST, EventKind
from torchyard.contract.notifications.views import MessageView

ENDS = (EventKind.JOB_SUCCEEDED, EventKind.JOB_FAILED, EventKind.JOB_CANCELLED)
_TARGET = "chaos"
_REFUSED_EACH = 5
"""Of so many new messages, one is refused when it comes for the first time."""


@dataclass(frozen=True)
class Received:
    message_id: str
    body: bytes
    timestamp: int
    signature: str


class Receiver(ThreadingHTTPServer):
    """Keeps what it gets, also what it refuses."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[Received] = []
        self.secret = ""
        self._lock = threading.Lock()

    def take(self, new: Received) -> int:
        """Keeps a request. Returns the status of the answer."""
        with self._lock:
            known = {each.message_id for each in self.received}
            self.received.append(new)
            is_refused = new.message_id not in known and len(known) % _REFUSED_EACH == _REFUSED_EACH - 1
        return 503 if is_refused else 204

    def listen(self, client: Client) -> None:
        """Has the service tell it how each job of the client's user ends."""
        url = f"http://127.0.0.1:{self.server_port}/"
        made = client.notifications.add(_TARGET, url, kind="webhook", on=list(ENDS))
        assert made.secret is not None
        self.secret = made.secret


@contextmanager
def receiving() -> Generator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


def messages(client: Client) -> list[MessageView]:
    """Returns what the service has told or wants to tell, but for the digests."""
    return [each for each in client.notifications.messages() if each.kind != DIGEST]


def in_digests(client: Client) -> int:
    """Returns how many messages wait in digests: a user gets 60 in an hour."""
    found = (each.title for each in client.notifications.messages() if each.kind == DIGEST)
    return sum(int(title.split()[0]) for title in found)


def is_settled(client: Client) -> bool:
    """Returns whether nothing waits but digests."""
    return all(each.state != "waiting" for each in messages(client))


def violations(receiver: Receiver, told: Sequence[MessageView], ended: Collection[str], *, digested: int) -> list[str]:
    """Returns a sentence for each promise that is broken.

    Each ended job has one message or is in a digest; each message is delivered, with one body, and signed.
    """
    of_jobs = Counter(each.subject for each in told)
    silent = [job_id for job_id in ended if not of_jobs[job_id]]
    found = [f"{job_id}: {of_jobs[job_id]} messages tell its end" for job_id in ended if of_jobs[job_id] > 1]
    if len(silent) != digested:
        found.append(f"of {len(silent)} jobs no message tells the end, and digests have {digested}")
    found += [f"{each.id}: is {each.state}: {each.error}" for each in told if each.state != "delivered"]
    bodies = _bodies(receiver.received)
    found += [f"{each.id}: was never received" for each in told if each.id not in bodies]
    found += [f"{message_id}: came with {len(sent)} bodies" for message_id, sent in bodies.items() if len(sent) > 1]
    unknown = bodies.keys() - {each.id for each in told}
    found += [f"{message_id}: was received, and nobody has made it" for message_id in unknown]
    return found + [
        f"{each.message_id}: is wrongly signed" for each in receiver.received if not _is_signed(each, receiver)
    ]


def _bodies(received: Sequence[Received]) -> Mapping[str, set[bytes]]:
    found: dict[str, set[bytes]] = {}
    for each in received:
        found.setdefault(each.message_id, set()).add(each.body)
    return found


def _is_signed(received: Received, receiver: Receiver) -> bool:
    sent_at = datetime.fromtimestamp(received.timestamp, UTC)
    signature = Webhook(receiver.secret).sign(received.message_id, sent_at, received.body.decode())
    return received.signature == signature


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        timestamp = int(self.headers["webhook-timestamp"])
        new = Received(self.headers["webhook-id"], body, timestamp, self.headers["webhook-signature"])
        self.send_response(cast(Receiver, self.server).take(new))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
