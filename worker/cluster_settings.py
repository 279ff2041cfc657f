"""The settings of a worker whose jobs run on a cluster: a pool is a partition of it."""

from collections.abc import Mapping
from pathlib import Path
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from store import settings
from torchyard.contract.cluster.devices import PoolRules
from torchyard.contract.wire.wording import allowing

POOLS = "pools"
"""The folder in the data directory of what each pool has there: its run directories, and the worker's identity."""

_NAME = r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,99}"
_CONSTRAINT = r"[A-Za-z0-9_\[(][A-Za-z0-9._@+&|\[\]()*:-]{0,199}"


def _names(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _accounts(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in _names(value)]
    for owner, _, account in pairs:
        if not re.fullmatch(_NAME, owner.strip()) or not re.fullmatch(_NAME, account.strip()):
            raise ValueError(f"{value!r} is not OWNER=ACCOUNT,OWNER=ACCOUNT,…")
    return {owner.strip(): account.strip() for owner, _, account in pairs}


_Name = Annotated[str, Field(pattern=allowing(f"^{_NAME}$", "letters, digits, . _ @ + -, the first no sign"))]
_Constraint = Annotated[str, Field(pattern=allowing(f"^{_CONSTRAINT}$", "features, with & | [ ] ( ) * between them"))]
Names = Annotated[tuple[_Name, ...], NoDecode, BeforeValidator(_names), Field(strict=False)]
"""Names with `,` between them."""
Constraints = Annotated[tuple[_Constraint, ...], NoDecode, BeforeValidator(_names), Field(strict=False)]
"""As `Names`."""
Accounts = Annotated[dict[str, str], NoDecode, BeforeValidator(_accounts)]
"""`OWNER=ACCOUNT`, with `,` between them."""


class ClusterSettings(settings.Settings):
    """Which partition a worker serves instead of its host's devices, and what jobs may ask of it."""

    pool: Annotated[
        str, Field(pattern=allowing(r"^(slurm:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$", "slurm:PARTITION, or nothing"))
    ] = ""
    """`slurm:PARTITION`. Empty: this host's devices."""
    slurm_accounts: Names = ()
    """Accounts that jobs may name."""
    slurm_qos: Names = ()
    """Qualities of service that jobs may name."""
    slurm_constraints: Constraints = ()
    """Constraints that jobs may name."""
    slurm_reservations: Names = ()
    """Reservations that jobs may name."""
    slurm_owner_accounts: Accounts = Field(default_factory=dict)
    """The account of jobs that name none, by owner."""
    slurm_ahead: Annotated[int, Field(ge=1, le=1000)] = 10
    """How many jobs of one owner may wait in the cluster's queue."""
    interface: Annotated[
        str, Field(pattern=allowing(r"^([A-Za-z0-9][A-Za-z0-9._:@-]{0,14})?$", "the name of a network interface"))
    ] = ""
    """The network interface by which nodes reach each other. Empty: that of the address of the node's name."""

    @property
    def partition(self) -> str | None:
        """The partition that the worker serves. None: it serves its host's devices."""
        return self.pool.partition(":")[2] or None

    @property
    def home(self) -> Path:
        """The folder of what is this worker's own: a pool has one beside the worker of the same data directory."""
        return self.root if self.partition is None else self.root / POOLS / self.partition

    @property
    def identity(self) -> Path:
        """The file that says which worker this is. Its modification time tells whether it is alive."""
        return self.home.resolve() / "worker.json"

    @property
    def pool_rules(self) -> PoolRules:
        owners: Mapping[str, str] = self.slurm_owner_accounts
        return PoolRules(
            accounts=[*self.slurm_accounts],
            qos=[*self.slurm_qos],
            constraints=[*self.slurm_constraints],
            reservations=[*self.slurm_reservations],
            account_of=dict(owners),
        )
