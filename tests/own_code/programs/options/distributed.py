"""Takes NCCL as soon as it sees RANK, as many programs do."""

import os

if "RANK" in os.environ:
    import torch.distributed as dist

    dist.init_process_group("nccl")
print("ran", "RANK" in os.environ)
