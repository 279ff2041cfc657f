"""The configuration of `script`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from torchyard.contract.schema import LONGEST_URL, Schema, unbuilt


class Script(Schema):
    """A user's own program, one process per device under torchrun."""

    code: Annotated[str, Field(pattern=r"^file:///.+$", max_length=LONGEST_URL)] = Field(
        description="`file:///…`, a folder below a root that the worker's operator allowed"
    )
    entrypoint: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-/]{0,499}\.py$")] = Field(
        default="train.py", description="the program: a path below the code folder"
    )
    args: Annotated[list[Annotated[str, Field(max_length=10_000)]], Field(max_length=1000)] = Field(
        default=[], description="command-line arguments of the program"
    )
    requirements: Annotated[str | None, unbuilt(None)] = Field(
        default=None, description="packages to install first: not built yet"
    )

    @model_validator(mode="after")
    def _entrypoint_stays_inside(self) -> Self:
        if ".." in self.entrypoint.split("/"):
            raise ValueError("entrypoint must be inside the code folder")
        return self
