"""Reads class folders with timm's loader for evaluation: FOLDER SIDE BATCH WORKERS."""

import sys

from reading import take_turns
from timm.data.dataset import ImageDataset
from timm.data.loader import create_loader
import torch


def main() -> None:
    folder, (side, batch, workers) = sys.argv[1], map(int, sys.argv[2:])
    torch.set_num_threads(1)
    loader = create_loader(
        ImageDataset(folder),
        input_size=(3, side, side),
        batch_size=batch,
        num_workers=workers,
        use_prefetcher=False,
        crop_pct=1.0,
        interpolation="bilinear",
        persistent_workers=True,
        device=torch.device("cpu"),
    )
    take_turns(lambda: sum(len(pictures) for pictures, _ in loader))


if __name__ == "__main__":
    main()
