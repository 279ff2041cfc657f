import pytest

from tests.e2e.service import Service


@pytest.fixture(scope="session")
def service(shared_service: Service) -> Service:
    """The service that runs on each kind of database, for all tests that do not break it."""
    return shared_service
