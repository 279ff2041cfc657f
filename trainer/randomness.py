"""The random generators of one rank: seeds them, and saves and restores their state."""

from collections.abc import Mapping
import hashlib
import os
import random
from typing import Any

import numpy as np
import torch

from torchyard.run import accelerator
from trainer.world import World


def seed_everything(seed: int) -> None:
    """Seeds the generators of Python, NumPy and PyTorch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def derived_seed(*parts: int) -> int:
    """Returns a seed of 63 bits that other `parts` do not share: the job's seed, the rank, the step of a resume."""
    digest = hashlib.sha256(" ".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def use_deterministic_algorithms() -> None:
    """Makes PyTorch refuse operations whose result may differ between runs. Call it before CUDA is initialized."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def random_state() -> dict[str, Any]:
    """Returns the state of all generators, in a form that loads with `weights_only=True`."""
    version, numbers, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": {"version": version, "state": torch.tensor(numbers), "gauss": gauss},
        "numpy": {
            "keys": torch.from_numpy(np.asarray(keys, dtype=np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "gauss": float(cached),
        },
        "torch": torch.get_rng_state(),
        "device": accelerator.random_state(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Restores what `random_state` returned. Ignores the state of a GPU's generator if there is no GPU."""
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["state"].tolist()), python["gauss"]))
    keys = numpy["keys"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, numpy["position"], numpy["has_gauss"], numpy["gauss"]))
    torch.set_rng_state(state["torch"])
    accelerator.set_random_state(state["device"])


def resume_random_state(state: Mapping[str, Any], world: World, *, seed: int) -> str | None:
    """Restores this rank's generators from the state of a checkpoint. On another number of ranks, seeds them anew.

    Returns what users should know then.
    """
    before, step = state["sampler"]["world_size"], state["step"]
    if before == world.size:
        set_random_state(state["random"][world.rank])
        return None
    seed_everything(derived_seed(seed, world.rank, step))
    return (
        f"resumed at step {step} with {world.size} processes instead of {before}: the global batch stays "
        f"{state['sampler']['global_batch']}, no sample of the epoch is repeated or left out, but dropout draws "
        "new random numbers"
    )
