"""What a job may ask of the Slurm cluster behind its pool."""

from typing import Annotated

from pydantic import Field

from torchyard.contract.schema import Schema
from torchyard.contract.wording import allowing

_SLURM_WORD = allowing(
    r"^[A-Za-z0-9_][A-Za-z0-9._@-]{0,99}$",
    "1 to 100 letters, digits, `.`, `_`, `@` and `-`, of which the first is a letter, a digit or `_`",
)
SlurmWord = Annotated[str, Field(pattern=_SLURM_WORD)]
_SLURM_FEATURES = allowing(
    r"^[A-Za-z0-9_(\[][A-Za-z0-9._@&|*()\[\]-]{0,199}$",
    "1 to 200 letters, digits and characters of `._@-&|*()[]`, of which the first is no `.`, `@`, `-`, `&`, `|` or `*`",
)
SlurmFeatures = Annotated[str, Field(pattern=_SLURM_FEATURES)]


class SlurmOptions(Schema):
    """What the job asks of the pool's cluster besides devices. The pool's operator says what is allowed."""

    account: SlurmWord | None = Field(default=None, description="null: the one of the job's owner, if there is one")
    qos: SlurmWord | None = Field(default=None, description="null: the account's")
    constraint: SlurmFeatures | None = Field(default=None, description="features that the nodes must have")
    reservation: SlurmWord | None = Field(default=None, description="a reservation of the cluster to run in")
