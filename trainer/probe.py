"""`python -P -m trainer.probe` prints as JSON what the installed PyTorch supports here. It creates no CUDA context."""

import json
import sys

import torch
from torch import distributed
from torch.cuda import nccl


def main() -> None:
    """Prints one line of JSON."""
    available = torch.cuda.is_available()
    facts = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "available": available,
        "why": None if available else _why_not(),
        "devices": torch.cuda.device_count(),
        "nccl": _nccl(),
        "gloo": distributed.is_available() and distributed.is_gloo_available(),
    }
    sys.stdout.write(f"{json.dumps(facts)}\n")


def _why_not() -> str:
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return " ".join(str(error).split())[:500]
    return "unknown"


def _nccl() -> str | None:
    if not (distributed.is_available() and distributed.is_nccl_available()):
        return None
    return ".".join(str(part) for part in nccl.version())


if __name__ == "__main__":
    main()
