"""The bodies of requests for reaches."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from torchyard.contract.reach.orders import MOST_BYTES, Order
from torchyard.contract.wire.schema import Schema

Side = Annotated[int, Field(ge=1, le=10_000)]


class NewTerminal(Schema):
    """The user's terminal."""

    rows: Side = 24
    columns: Side = 80
    kind: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$")] = Field(
        default="xterm-256color", description="value of `TERM`"
    )


class NewReach(Schema):
    """The program, ports or SSH session to open in the job's sandbox."""

    kind: Literal["program", "ports", "ssh"] = Field(
        description="`program`; `ports`: connections to ports of the job; or `ssh`: an SSH server for this client"
    )
    argv: Annotated[list[Annotated[str, Field(max_length=MOST_BYTES)]], Field(max_length=10_000)] = Field(
        default=[],
        description=f"arguments of a `program`, at most {MOST_BYTES} bytes (8 more for each); empty: a shell",
    )
    rank: int = Field(
        default=0, ge=0, lt=2**31, description="rank whose working folder and environment variables the program gets"
    )
    terminal: NewTerminal | None = Field(default=None, description="the terminal; null: the program gets pipes")
    authorized_key: str = Field(
        default="", max_length=1000, description="`ssh`: public key of the client, as in `authorized_keys`"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.order()
        return self

    def order(self) -> Order:
        """Raises ValueError for what does not fit together."""
        return Order.from_dict(self.model_dump())


class NewOrigin(Schema):
    """The terminal or port to open in a running job."""

    port: int | None = Field(
        default=None, ge=1, le=65535, description="port on which a process of the job listens; null: a terminal"
    )
