"""Clients of a test process share the certificates of the system: to read them takes as long as ten requests."""

import ssl

import httpx2
import pytest


def test_the_certificates_of_the_system_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    httpx2.Client().close()

    def read(*_: object, **__: object) -> None:
        raise AssertionError("they are read again")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", read)
    httpx2.Client().close()
