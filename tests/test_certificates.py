"""httpx2 clients of one test process read the system's certificates once: reading takes as long as ten requests."""

import ssl

import httpx2
import pytest


def test_the_certificates_of_the_system_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    httpx2.Client().close()

    def read(*_: object, **__: object) -> None:
        raise AssertionError("they are read again")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", read)
    httpx2.Client().close()
