"""What passes between the ends of a reach, and who may be one. The service is a real one, and so are the WebSockets."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from api.server import server
from store.attempts import end, read
from store.attempts.facts import Claim
from store.db.database import Database
from store.tables import Reach
from tests.api.raw import wait_until
from tests.api.reach_ends import DEADLINE_S, await_other, code_of_close, met, open_socket, send_proof
from tests.api.service import TOKEN, ApiFixture
from tests.api.serving import api_thread
from tests.rows import each_row
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.reach.proof import Side, new_nonce
from torchyard.contract.states import EndReason


@pytest.fixture
def url(service: ApiFixture, tmp_path: Path, database: Database, redis_url: str) -> Iterator[str]:
    address = database.engine.url.render_as_string(hide_password=False)
    with api_thread(tmp_path, address, redis_url, max_wrong_tokens_per_minute=1000) as found:
        yield found


@pytest.fixture
def claim(service: ApiFixture) -> Claim:
    return service.start(service.submit()["id"])


@pytest.fixture
def reach(url: str, claim: Claim) -> Callable[..., dict[str, Any]]:
    """Opens a reach by a request."""

    def send(path: str = f"/v1/jobs/{claim.job_id}/reaches", *, token: str = TOKEN, **body: Any) -> dict[str, Any]:
        wanted = body or {"kind": "program", "argv": ["cat"]}
        answer = httpx2.post(f"{url}{path}", json=wanted, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 201, answer.text
        return answer.json()

    return send


@pytest.mark.parametrize("first", ["client", "worker"])
def test_bytes_pass_both_ways_until_the_worker_says_that_nothing_runs(
    service: ApiFixture, url: str, claim: Claim, reach: Callable[..., dict[str, Any]], first: Side
) -> None:
    opened = reach()
    with met(opened, client=url, worker=url, first=first) as (client, worker):
        client.send(b"\x00\xff in")
        assert worker.recv(timeout=DEADLINE_S) == b"\x00\xff in"
        worker.send(b"out")
        worker.close()
        assert client.recv(timeout=DEADLINE_S) == b"out"
        assert code_of_close(client) == 1000
    wait_until(lambda: service.get(f"/v1/jobs/{claim.job_id}/reaches")["data"] == [])
    left, *_ = service.get("/v1/audit")["data"]
    assert (left["action"], left["who"], left["address"]) == ("reach.leave", "admin", "127.0.0.1")
    assert left["object"] == f"{opened['id']} of {claim.job_id}: 5 bytes to the job, 3 from it"


def test_a_client_that_was_cut_joins_again_and_its_first_meeting_ends(
    service: ApiFixture, url: str, claim: Claim, reach: Callable[..., dict[str, Any]]
) -> None:
    opened = reach(kind="program", terminal={})
    with met(opened, client=url, worker=url) as (client, worker):
        again = reach(f"/v1/reaches/{opened['id']}/meetings")
        assert (code_of_close(client), code_of_close(worker)) == (4410, 4410)
    with service.database.read() as session:
        (order,) = read.read_wanted(session, claim).reaches
    assert (order.kind, order.meeting, order.secret) == ("join", 2, again["secret"])
    with met(again, client=url, worker=url) as (client, worker):
        client.socket.shutdown(socket.SHUT_RDWR)
        assert code_of_close(worker) == 1001
    assert [row["meeting"] for row in service.get(f"/v1/jobs/{claim.job_id}/reaches")["data"]] == [2]


WRONG: dict[str, dict[str, Any]] = {
    "the other side": {"side": "worker"},
    "the service's side": {"side": "service"},
    "another meeting": {"meeting": 2},
    "an old nonce": {"service_nonce": new_nonce()},
    "no hexadecimal nonce": {"end_nonce": "x"},
}


@each_row("wrong", WRONG)
def test_a_wrong_proof_is_refused_and_the_right_one_is_taken_after_it(
    url: str, reach: Callable[..., dict[str, Any]], wrong: str
) -> None:
    opened = reach()
    with open_socket(url, opened, "client") as stranger:
        send_proof(stranger, opened, "client", **WRONG[wrong])
        assert code_of_close(stranger) == 4403
    with met(opened, client=url, worker=url):
        pass


def test_a_reach_that_does_not_exist_looks_like_a_wrong_proof(url: str) -> None:
    unknown = {"id": f"rch_{'0' * 32}", "meeting": 1, "secret": "00" * 32}
    unknown["url"] = f"/v1/reaches/{unknown['id']}/stream?meeting=1"
    with open_socket(url, unknown, "client") as stranger:
        send_proof(stranger, unknown, "client")
        assert code_of_close(stranger) == 4403


def test_each_end_comes_once(url: str, reach: Callable[..., dict[str, Any]]) -> None:
    opened = reach()
    with open_socket(url, opened, "client") as first, open_socket(url, opened, "client") as second:
        nonces = send_proof(first, opened, "client")
        with open_socket(url, opened, "worker") as worker:
            theirs = send_proof(worker, opened, "worker")
            await_other(first, opened, nonces)
            await_other(worker, opened, theirs)
            send_proof(second, opened, "client")
            assert code_of_close(second) == 4403, "the secret is gone once both have come"
            first.send(b"on")
            assert worker.recv(timeout=DEADLINE_S) == b"on"


def test_the_secret_of_a_meeting_opens_no_other_one(url: str, reach: Callable[..., dict[str, Any]]) -> None:
    """Who has read a secret, of a log say, gets nothing by it once its meeting is over."""
    old = reach(kind="program", terminal={})
    with met(old, client=url, worker=url):
        new = reach(f"/v1/reaches/{old['id']}/meetings")
    for stolen in (old, {**new, "secret": old["secret"]}, {**old, "secret": new["secret"]}):
        with open_socket(url, stolen, "client") as thief:
            send_proof(thief, stolen, "client")
            assert code_of_close(thief) == 4403
    with met(new, client=url, worker=url):
        pass


@each_row("message", [b"\x00" * 100, "no json", '{"nonce": 1}', "[" * 900, "x" * 100_000])
def test_what_is_no_proof_is_refused(url: str, reach: Callable[..., dict[str, Any]], message: bytes | str) -> None:
    with open_socket(url, reach(), "client") as stranger:
        stranger.recv(timeout=DEADLINE_S)
        stranger.send(message)
        assert code_of_close(stranger) == 4403


def test_a_message_beyond_the_limit_and_text_end_the_meeting(url: str, reach: Callable[..., dict[str, Any]]) -> None:
    for message, code in ((b"x" * ((1 << 18) + 1), 1009), ("text", 1003)):
        with met(reach(), client=url, worker=url) as (client, worker):
            client.send(message)
            assert code_of_close(client) == code
            assert code_of_close(worker) == 1001


@each_row(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example", "X-Forwarded-Host": "evil.example"}, 403),
        ({"X-Long": "x" * 9000}, 431),
    ],
)
def test_a_browser_elsewhere_and_an_unbounded_head_open_nothing(
    url: str, reach: Callable[..., dict[str, Any]], headers: dict[str, str], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused, open_socket(url, reach(), "client", additional_headers=headers):
        pass
    assert refused.value.response.status_code == status


def test_a_name_that_leads_here_by_another_web_sites_doing_opens_nothing(
    url: str, reach: Callable[..., dict[str, Any]]
) -> None:
    port = urlsplit(url).port
    elsewhere = f"http://evil.example:{port}"
    opened = reach()
    with pytest.raises(InvalidStatus) as refused:
        open_socket(elsewhere, opened, "client", address=("127.0.0.1", port), origin=elsewhere)
    assert refused.value.response.status_code == 421


def test_the_services_own_origin_is_taken_and_a_token_is_not_asked_for(
    url: str, reach: Callable[..., dict[str, Any]]
) -> None:
    with open_socket(url, reach(), "client", origin=url) as socket:
        assert "nonce" in str(socket.recv(timeout=DEADLINE_S))


def test_an_upgrade_elsewhere_is_ignored(url: str) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    assert httpx2.get(f"{url}/healthz", headers=upgrade).status_code == 200


def test_a_reach_ends_at_once_with_its_token_with_its_attempt_and_by_a_request(
    service: ApiFixture, url: str, claim: Claim, reach: Callable[..., dict[str, Any]]
) -> None:
    made = service.client.post("/v1/tokens", json={"scopes": ["jobs:exec"]}).json()
    with met(reach(token=made["token"]), client=url, worker=url) as (client, worker):
        assert service.client.delete(f"/v1/tokens/{made['id']}").status_code == 204
        assert (code_of_close(client), code_of_close(worker)) == (4410, 4410)
    opened = reach()
    with met(opened, client=url, worker=url) as (client, worker):
        assert service.client.delete(f"/v1/reaches/{opened['id']}").status_code == 204
        assert (code_of_close(client), code_of_close(worker)) == (4410, 4410)
    with service.database.read() as session:
        told = read.read_wanted(session, claim).reaches
    assert {order.kind for order in told} == {"end"}
    with met(reach(), client=url, worker=url) as (client, worker):
        with service.app.state.services.store.write("end") as session:
            end.end(session, claim, ExitReport(reason=EndReason.KILLED, message="lost"))
        assert (code_of_close(client), code_of_close(worker)) == (4410, 4410)


def test_a_client_that_goes_in_order_lets_the_worker_say_that_nothing_runs_any_more(
    service: ApiFixture, url: str, claim: Claim, reach: Callable[..., dict[str, Any]]
) -> None:
    with met(reach(kind="program", terminal={}), client=url, worker=url) as (client, worker):
        client.send(b"the last")
        client.close()
        assert worker.recv(timeout=DEADLINE_S) == b"the last"
        worker.send(b"for nobody")
        worker.close()
    wait_until(lambda: service.get(f"/v1/jobs/{claim.job_id}/reaches")["data"] == [])


def test_a_second_client_is_refused_while_the_first_one_waits(
    service: ApiFixture, url: str, reach: Callable[..., dict[str, Any]]
) -> None:
    opened = reach()
    with open_socket(url, opened, "client") as first, open_socket(url, opened, "client") as second:
        nonces = send_proof(first, opened, "client")
        wait_until(lambda: _awaits_worker(service, opened))
        send_proof(second, opened, "client")
        assert code_of_close(second) == 4403
        with open_socket(url, opened, "worker") as worker:
            theirs = send_proof(worker, opened, "worker")
            await_other(first, opened, nonces)
            await_other(worker, opened, theirs)


@pytest.mark.parametrize(
    ("limit", "code"), [("routes.reach_streams.MEETING", 4408), ("reaches.handshake.PROOF_S", 4403)]
)
def test_who_comes_alone_or_proves_nothing_waits_for_so_long(
    url: str, reach: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, limit: str, code: int
) -> None:
    opened = reach()
    monkeypatch.setattr(f"api.{limit}", timedelta(0) if code == 4408 else 0.0)
    with open_socket(url, opened, "client") as client:
        if code == 4408:
            send_proof(client, opened, "client")
        assert code_of_close(client) == code


def test_a_client_that_reads_nothing_holds_up_its_worker_and_not_the_memory(
    url: str, reach: Callable[..., dict[str, Any]]
) -> None:
    sent, message, count = list[int](), b"x" * (1 << 18), 256

    def send_all(worker: ClientConnection) -> None:
        for _ in range(count):
            worker.send(message)
            sent.append(len(message))

    with met(reach(), client=url, worker=url) as (client, worker):
        thread = threading.Thread(target=send_all, args=(worker,))
        thread.start()
        wait_until(_StandsStill(sent))
        assert sum(sent) < 32 << 20, "the rest waits where it comes from"
        assert sum(len(client.recv(timeout=DEADLINE_S)) for _ in range(count)) == count * len(message)
        thread.join()


def test_a_client_that_answers_no_ping_is_cut(
    service: ApiFixture, tmp_path: Path, redis_url: str, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PING_S", 0.05)
    monkeypatch.setattr(server, "_PONG_S", 1.0)  # long enough for a client that reads, on a busy machine too
    address = service.database.engine.url.render_as_string(hide_password=False)
    opened = service.client.post(f"/v1/jobs/{claim.job_id}/reaches", json={"kind": "ports"}).json()
    with (
        api_thread(tmp_path, address, redis_url) as url,
        open_socket(url, opened, "client", max_queue=1, ping_interval=None, close_timeout=0.1) as client,
        open_socket(url, opened, "worker") as worker,
    ):
        nonces = send_proof(client, opened, "client")
        await_other(worker, opened, send_proof(worker, opened, "worker"))
        await_other(client, opened, nonces)
        for _ in range(3):  # what it does not read keeps it from seeing pings
            worker.send(b"x" * 200_000)
        assert code_of_close(worker) == 1001


def test_many_tiny_messages_arrive_in_their_order(url: str, reach: Callable[..., dict[str, Any]]) -> None:
    numbers = [number.to_bytes(2, "big") for number in range(10_000)]
    with met(reach(), client=url, worker=url) as (client, worker):
        frame = b"\x82\x82\0\0\0\0"  # final and binary, two bytes, a mask that changes nothing
        client.socket.sendall(b"".join(frame + number for number in numbers))
        received = b""
        while len(received) < 20_000:
            received += worker.recv(timeout=DEADLINE_S, decode=False)
    assert received == b"".join(numbers)


def test_many_texts_at_once_are_not_kept(url: str, reach: Callable[..., dict[str, Any]]) -> None:
    with open_socket(url, reach(), "client") as client:
        client.recv(timeout=DEADLINE_S)
        client.socket.sendall(b"\x81\x81\0\0\0\0x" * 20_000)
        with pytest.raises(ConnectionClosed) as cut:
            client.recv(timeout=DEADLINE_S)
        assert cut.value.rcvd is None


def test_who_sends_pings_and_reads_no_answer_is_cut(url: str, reach: Callable[..., dict[str, Any]]) -> None:
    host = urlsplit(url).netloc
    asked = f"GET {reach()['url']}&end=client HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    asked += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=DEADLINE_S) as stranger:
        stranger.sendall(asked.encode())
        assert stranger.recv(12) == b"HTTP/1.1 101"
        pings = (b"\x89\xfd\0\0\0\0" + b"x" * 125) * 8000
        with pytest.raises(ConnectionError):
            for _ in range(64):
                stranger.sendall(pings)


class _StandsStill:
    """Whether a list has grown no more over many looks."""

    def __init__(self, grows: list[int]) -> None:
        self._grows, self._before, self._times = grows, 0, 0

    def __call__(self) -> bool:
        now = len(self._grows)
        self._times = self._times + 1 if now == self._before and now else 0
        self._before = now
        return self._times > 20


def _awaits_worker(service: ApiFixture, opened: dict[str, Any]) -> bool:
    with service.database.read() as session:
        return session.get_one(Reach, opened["id"]).first == "client"
