"""Advice about the loader processes of a recipe: how many would load as fast as the ranks compute."""

import math

from api.advice.facts import Facts

_MOST_LOADERS = 64
_MOST_AUTO_LOADERS = 8


def more(facts: Facts, wait: float) -> tuple[str, str]:
    """Returns how many loader processes would be fast enough, in a few words and as a sentence.

    With `n` processes that are the bottleneck, `n / (1 - wait)` load as fast as the ranks compute.
    """
    if facts.loaders is None:
        return "", "Load the data in more processes, or keep it in memory."
    cpus, share = _cpus(facts)
    now = facts.loaders.workers
    count = now if now != "auto" else None if share is None else min(share, _MOST_AUTO_LOADERS)
    if count is None:
        return "raise data.workers", "Set data.workers above 8: auto starts 1 to 8 processes per rank."
    wait = min(wait, 0.95)
    wanted = math.ceil(round(max(count, wait) / (1 - wait), 6))
    most = min(_MOST_LOADERS, share or _MOST_LOADERS)
    wanted = min(max(wanted, count + 1), most)
    if wanted <= count:
        return "", (
            f"Make the samples cheaper to load, such as pictures that are stored in the size of data.image_size: each"
            f" rank's {count} loader processes have their share of the {cpus:g} CPUs already."
        )
    known = f"{now}, which is {count} here" if now == "auto" else now
    return f"set data.workers to {wanted}", f"Set data.workers to {wanted}: it is {known}."


def _cpus(facts: Facts) -> tuple[float, int] | tuple[None, None]:
    """Returns how many CPUs the job may use, or its host has, and the share of one rank. None: no worker tells it."""
    ranks, own = max(len(facts.job.devices), 1), facts.job.spec.resources.cpus
    if own is not None:
        return own, max(int(own / ranks), 1)
    for worker in facts.workers:
        if worker.starts and worker.starts.cpus:
            return worker.starts.cpus, max(int(worker.starts.cpus / max(ranks, len(worker.devices))), 1)
    return None, None
