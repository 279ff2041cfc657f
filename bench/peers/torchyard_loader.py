"""Reads class folders with the trainer of the checkout on the path: FOLDER SIDE BATCH WORKERS."""

from pathlib import Path
import sys

from reading import take_turns
import torch

from torchyard.contract.recipes import ImageDataConfig
from trainer.data.folders import load_folders


def main() -> None:
    folder, (side, batch, workers) = Path(sys.argv[1]), map(int, sys.argv[2:])
    torch.set_num_threads(1)
    data = load_folders(folder, ImageDataConfig(image_size=side, val_fraction=0.001))
    parts = [(part, list(torch.randperm(len(part)).split(batch))) for part in (data.train, data.val)]

    def read() -> int:
        return sum(
            len(pictures)
            for part, plan in parts
            for pictures, _ in part.batches(plan, device=torch.device("cpu"), workers=workers)
        )

    take_turns(read)


if __name__ == "__main__":
    main()
