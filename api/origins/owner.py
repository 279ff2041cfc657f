"""Who uses an origin."""

from starlette.requests import HTTPConnection

from api.auth.callers import Principal
from api.server.address import client_address
from api.services import Services
from store.reaches.facts import OriginFacts
from torchyard.contract.team.roles import Role


def caller_of(facts: OriginFacts, request: HTTPConnection, services: Services) -> Principal:
    """Returns whose origin it is, as the audit records it."""
    return Principal(
        facts.user,
        Role(facts.role),
        token_id=facts.token_id,
        address=client_address(request.scope, services.settings),
        request_id=request.state.request_id,
        session=facts.session,
    )
