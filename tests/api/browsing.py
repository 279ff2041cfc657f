"""A browser of a test: a session of the page, and the origins that it opens, each with its cookies."""

from typing import Any
from urllib.parse import urlsplit

import httpx2
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.api.reach_ends import DEADLINE_S
from tests.api.service import TOKEN


class Page:
    """The page in one browser session."""

    def __init__(self, url: str, *, token: str = TOKEN, exec: bool = True) -> None:
        self.url = url
        self.cookies: dict[str, str] = {}
        self._headers = {"Origin": url}
        answer = self._send("POST", "/v1/session", json={"token": token, "exec": exec})
        assert answer.status_code == 200, answer.text
        self.cookies |= dict(answer.cookies)
        self._headers["X-CSRF-Token"] = answer.json()["csrf"]

    def ask(self, job_id: str, *, port: int | None = None) -> httpx2.Response:
        """Asks for an address of a terminal, or of a port of the job."""
        return self._send("POST", f"/v1/jobs/{job_id}/origins", json={"port": port})

    def address(self, job_id: str, *, port: int | None = None) -> str:
        answer = self.ask(job_id, port=port)
        assert answer.status_code == 201, answer.text
        return answer.json()["url"]

    def open(self, job_id: str, *, port: int | None = None) -> "Opened":
        """Opens such an address, as the browser's next tab does."""
        opened = Opened(self.address(job_id, port=port))
        assert opened.entered.status_code == 200, opened.entered.text
        return opened

    def sign_out(self) -> None:
        assert self._send("DELETE", "/v1/session").status_code == 204

    def _send(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return httpx2.request(
            method,
            f"{self.url}{path}",
            headers=self._headers | {"Cookie": _sent(self.cookies)},
            timeout=DEADLINE_S,
            **more,
        )


class Opened:
    """A tab at an origin. `entered`: the answer to the address with its ticket."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.host, self.port = parts.netloc, parts.port
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.cookies: dict[str, str] = {}
        self.entered = self.send(f"{parts.path}?{parts.query}")
        self.cookies |= dict(self.entered.cookies)

    def send(self, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> httpx2.Response:
        """Sends a request with the cookies of this origin. `headers`: instead of the browser's own."""
        own = {"Host": self.host, "Origin": self.origin, "Cookie": _sent(self.cookies)}
        sent = {name: value for name, value in {**own, **headers}.items() if value}
        return httpx2.request(
            method, f"http://127.0.0.1:{self.port}{path}", json=body, headers=sent, timeout=DEADLINE_S
        )

    def connect(self, path: str, *, origin: str = "") -> ClientConnection:
        """Opens a WebSocket, as a script of the origin does."""
        return connect(
            f"ws://{self.host}{path}",
            origin=Origin(origin or self.origin),
            additional_headers={"Cookie": _sent(self.cookies)},
            address=("127.0.0.1", self.port),
            proxy=None,
            compression=None,
            open_timeout=DEADLINE_S,
            close_timeout=DEADLINE_S,
        )


def _sent(cookies: dict[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in cookies.items())
