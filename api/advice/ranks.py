"""Advice about the ranks of a job together: one that the others wait for, and devices that do not pay."""

from api.advice.facts import Facts, evidence, percent
from torchyard.contract.advice import AdviceView, EvidenceView, lagging_rank
from torchyard.contract.recipes.entry import RANK_LAG, RANK_WAIT

_FEWER_UPDATES = 2


def slowest(facts: Facts) -> AdviceView | None:
    """Names the rank that the others wait for."""
    values, devices = facts.job.metrics, facts.job.devices
    rank = lagging_rank(values, ranks=len(devices))
    if rank is None:
        return None
    device = devices[rank]
    where = f"device {device.index} ({device.name}) of {device.host or device.worker}"
    return AdviceView(
        headline=f"rank {rank} is the slowest: another rank waits for it for {percent(values[RANK_LAG])} of each step",
        cause=f"Rank {rank}, on {where}, is last to exchange gradients: the other ranks wait for it.",
        evidence=[
            _metric(facts, RANK_LAG),
            _metric(facts, RANK_WAIT),
            *_device_evidence(facts, device.uuid, rank),
        ],
        steps=[
            f"Check {where}: other processes, heat, a power limit or too few CPUs for its loaders may slow it down.",
            f"Run it on other devices to compare. If rank {rank} is the slowest there too, it has more to compute,"
            " such as longer samples.",
        ],
        severity="warning",
    )


def slower_than_one(facts: Facts) -> AdviceView | None:
    """Says where several devices do less than one would, as they wait for one another.

    Ranks that wait for a share w of a step compute for 1 − w of it: n of them do n · (1 − w) of what one alone does.
    """
    wait, count = facts.job.metrics.get(RANK_WAIT), len(facts.job.devices)
    if wait is None or count < 2 or not 1 - 1 / count < wait <= 1:
        return None
    return AdviceView(
        headline=f"{count} devices are slower than one here: {percent(wait)} of each step waits for the other ranks",
        cause=f"The ranks compute for {percent(1 - wait)} of each step, together as much as"
        f" {count * (1 - wait):.2g} devices without waits.",
        evidence=[_metric(facts, RANK_WAIT)],
        steps=_fewer_exchanges(facts, count),
        severity="warning",
    )


def more_epochs(facts: Facts) -> str | None:
    """Returns a step for a recipe whose learning rate was scaled to a larger batch, which makes fewer updates."""
    card = facts.job.card or {}
    whole = card.get("global_batch")
    if facts.recipe is None or not isinstance(whole, int) or facts.recipe.optimizer.lr_scaling == "none":
        return None
    training = facts.recipe.training
    factor = whole // training.per_device_batch_size
    if factor < _FEWER_UPDATES or training.max_steps is not None:
        return None
    return (
        f"If the result is worse than on one device, train for more epochs: a global batch of {whole} makes 1/{factor}"
        f" of the updates; lr_scaling may not make up for that. training.epochs {factor * training.epochs}"
        f" makes as many as {training.epochs} did with batches of {training.per_device_batch_size}."
    )


def _fewer_exchanges(facts: Facts, count: int) -> list[str]:
    if facts.recipe is None:
        return ["Set resources.devices_per_node to 1, or let the ranks exchange less: larger batches, accumulation."]
    accumulated = facts.recipe.training.gradient_accumulation_steps
    return [
        f"Set resources.devices_per_node to 1 and training.gradient_accumulation_steps to {count * accumulated}: the"
        " same global batch.",
        "Or let the ranks exchange less often: larger micro-batches, more accumulation, or distributed.strategy"
        " local_sgd.",
    ]


def _metric(facts: Facts, name: str) -> EvidenceView:
    return evidence("metric", f"{name} is {facts.job.metrics.get(name, float('nan')):.2f}")


def _device_evidence(facts: Facts, uuid: str, rank: int) -> list[EvidenceView]:
    return [
        evidence(
            "utilization", f"{item.kind} {item.index}: {percent(item.utilization)} at the newest sample", rank=rank
        )
        for item in facts.held
        if item.uuid == uuid and item.kind == "cuda" and item.utilization is not None
    ]
