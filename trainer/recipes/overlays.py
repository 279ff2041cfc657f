"""Draws pictures beside their true and predicted masks."""

from collections.abc import Sequence
from functools import partial
import re
from typing import BinaryIO

import numpy as np
from PIL import Image
import torch
from torch import Tensor

from torchyard.models.palette import IGNORED_COLOUR
from torchyard.run.publishing import Content
from trainer.data.masks import IGNORED

FOLDER = "overlays"
GAP = 4
"""Grey pixels between two panels."""


def overlays(
    names: Sequence[str], pictures: Tensor, truth: Tensor, predicted: Tensor, *, colours: Sequence[Sequence[int]]
) -> dict[str, Content]:
    """Returns a file `overlays/<name>.png` for each picture: the picture, the true mask, the predicted mask.

    `pictures` are uint8 (samples, 3, height, width); the masks are classes, or IGNORED, (samples, 1, height, width).
    `colours` are those of the classes. The files are encoded when they are written to disk.
    """
    unused = [IGNORED_COLOUR] * (IGNORED + 1 - len(colours))
    table = torch.tensor([*colours, *unused], dtype=torch.uint8, device=pictures.device)
    drawn = [table[masks[:, 0].long()].permute(0, 3, 1, 2) for masks in (truth, predicted)]
    gap = torch.full_like(pictures[..., :GAP], 128)
    panels = torch.cat([pictures, gap, drawn[0], gap, drawn[1]], dim=-1).permute(0, 2, 3, 1)
    return {
        f"{FOLDER}/{name}.png": partial(_write, panel.numpy())
        for name, panel in zip(_file_names(names), panels.cpu().contiguous(), strict=True)
    }


def _file_names(names: Sequence[str]) -> list[str]:
    """Returns unique names of the characters that a checkpoint's manifest allows."""
    chosen: list[str] = []
    for number, name in enumerate(names):
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80]
        plain = plain if re.match(r"[A-Za-z0-9_]", plain) else f"_{plain}"
        while plain in chosen:
            plain += f"-{number}"
        chosen.append(plain)
    return chosen


def _write(panel: np.ndarray, file: BinaryIO) -> None:
    Image.fromarray(panel).save(file, "PNG")
