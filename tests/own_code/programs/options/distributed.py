"""Takes NCCL as soon as it sees RANK, as many programs do."""

import os

import torch.distributed as dist

if "RANK" in os.environ:
    dist.init_process_group("nccl")
print("ran", "RANK" in os.environ)
