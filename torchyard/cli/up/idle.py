"""Whether a service is used: whether jobs run or wait, and whether anybody asks it anything."""

import re
import time

_PERIOD_S = 30.0
_TIMEOUT_S = 10.0
_REQUESTS = re.compile(
    r"^torchyard_http_request_duration_seconds_count\{(?P<labels>[^}]*)\} (?P<count>[0-9.e+]+)$", re.M
)
_OWN = 'route="/metrics"'
_UNFINISHED = re.compile(r'^torchyard_jobs\{state="(?:queued|starting|running|stopping)"\} (?P<count>[0-9.e+]+)$', re.M)


class Idleness:
    """Asks a service every half minute what it does. Nothing that it asks counts as use."""

    def __init__(self, url: str, token: str, *, limit_s: float) -> None:
        self._address = url.removeprefix("http://")
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
        unfinished, requests = self._ask()
        if unfinished or requests != self._requests:
            self._used, self._requests = now, requests
        return now - self._used >= self._limit_s

    def _ask(self) -> tuple[float, float]:
        """Returns how many jobs have not ended, and how many requests of others were answered."""
        import http.client  # while nothing waits for the service

        connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", "/metrics", headers=self._headers)
            text = connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException, ValueError):
            return 1.0, -1.0
        finally:
            connection.close()
        unfinished = sum(float(found["count"]) for found in _UNFINISHED.finditer(text))
        requests = sum(float(each["count"]) for each in _REQUESTS.finditer(text) if _OWN not in each["labels"])
        return unfinished, requests
