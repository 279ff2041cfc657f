"""Whether a service is used: whether jobs run, wait or are scheduled, and whether anybody asks it anything."""

from http import HTTPStatus
from http.client import HTTPException
import json
import re
import time

from torchyard.cli.up import address

_PERIOD_S = 30.0
_TIMEOUT_S = 10.0
_REQUESTS = re.compile(
    r"^torchyard_http_request_duration_seconds_count\{(?P<labels>[^}]*)\} (?P<count>[0-9.e+]+)$", re.M
)
_OWN = ('route="/metrics"', 'route="/v1/schedules"')
"""The routes that are asked here, in the labels of a count."""
_UNFINISHED = re.compile(r'^torchyard_jobs\{state="(?:queued|starting|running)"\} (?P<count>[0-9.e+]+)$', re.M)


class Idleness:
    """Asks a service every half minute what it does. Nothing that it asks counts as use."""

    def __init__(self, url: str, token: str, *, certificate: str | None = None, limit_s: float) -> None:
        self._url, self._certificate = url, certificate
        self._headers = {"Authorization": f"Bearer {token}"}
        self._limit_s = limit_s
        self._requests = -1.0
        self._asked = self._used = time.monotonic()

    def is_over(self) -> bool:
        """Returns whether nobody has used the service for the whole limit. A service that does not answer is used."""
        now = time.monotonic()
        if now - self._asked < min(_PERIOD_S, self._limit_s):
            return False
        self._asked = now
        try:
            unfinished, requests = self._read_use()
            if unfinished or requests != self._requests:
                self._used, self._requests = now, requests
            return now - self._used >= self._limit_s and not self._is_any_scheduled()
        except (OSError, HTTPException, ValueError, LookupError, TypeError):
            self._used = now
            return False

    def _read_use(self) -> tuple[float, float]:
        """Returns how many jobs have not ended, and how many requests of others were answered."""
        text = self._get("/metrics")
        unfinished = sum(float(found["count"]) for found in _UNFINISHED.finditer(text))
        counts = [found for found in _REQUESTS.finditer(text) if not any(own in found["labels"] for own in _OWN)]
        return unfinished, sum(float(found["count"]) for found in counts)

    def _is_any_scheduled(self) -> bool:
        """Returns whether one of the newest schedules is due again."""
        listed = json.loads(self._get("/v1/schedules?limit=100"))["data"]
        return any(schedule["next_at"] is not None for schedule in listed)

    def _get(self, path: str) -> str:
        connection = address.connection(self._url, self._certificate, timeout_s=_TIMEOUT_S)
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise ValueError(f"{path} answered {answer.status}")
            return answer.read().decode()
        finally:
            connection.close()
