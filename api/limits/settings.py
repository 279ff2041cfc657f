"""The settings of what clients may send, and how slowly."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class LimitSettings(BaseModel):
    """Limits of bodies, connections and callers."""

    model_config = ConfigDict(frozen=True)

    max_body_bytes: Annotated[int, Field(ge=1)] = 1_048_576
    max_connections: Annotated[int, Field(ge=1)] = 2_000
    """Connections that serve a request, and as many that wait for one."""
    max_connections_per_address: Annotated[int, Field(ge=1)] = 500
    """The same for one address, unless it is that of a trusted proxy."""
    max_requests_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1000
    """Average for one user; ten seconds' worth of requests may come at once. Users who send together share it."""
    max_streams: Annotated[int, Field(ge=1)] = 50
    """Streams and waiting requests that one user may have open."""
    max_wrong_tokens_per_minute: Annotated[int, Field(ge=1)] = 10
    """Requests of one address that have a wrong token, cookie or login."""
    head_timeout_s: Seconds = 10
    """Time for a request's whole head, from its first byte."""
    body_timeout_s: Seconds = 30
    """Longest time without a byte of a request's body."""
    stall_timeout_s: Seconds = 120
    """Time without progress after which a client that does not read its answer is disconnected."""
