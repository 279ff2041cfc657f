"""What stopping a job would cost, now."""

from dataclasses import dataclass

from torchyard.contract.price import Saving, Stake


@dataclass(frozen=True, slots=True)
class StopPrice:
    """The price of a running job."""

    job_id: str
    name: str
    owner: str
    visibility: str
    devices: int
    stake: Stake
    saving: Saving
    """What it does when it is asked to stop."""
