"""The program of the jobs that `bench.team` submits: logs what a search for cracks would log, and computes nothing."""

import argparse
import math
import os
from pathlib import Path
import random
import time

import numpy as np

import torchyard

STEPS = 240
PICTURES = 4
SIDE = 96
CLASSES = ("background", "crack", "spall")


def main() -> None:
    options = _options()
    run = torchyard.init()
    chance = random.Random(f"{options.lr} {options.batch} {options.optimizer} {options.seed}")
    # Best at a rate of 0.003, and a little better with a smaller batch.
    off = abs(math.log10(options.lr / 0.003)) + math.log2(options.batch / 16) / 20 + 0.2 * (options.optimizer == "sgd")
    best = max(0.1, 0.86 - 0.22 * off + chance.gauss(0, 0.015))
    step = 0
    while not run.should_stop() and (options.endless or step < STEPS):
        step += 1
        learnt = 1 - math.exp(-step / 60)
        loss = 0.25 + off / 4 + 1.1 * (1 - learnt) + chance.gauss(0, 0.04)
        run.log(
            {"train/loss": loss, "lr": options.lr * 0.5 * (1 + math.cos(math.pi * min(1, step / STEPS)))}, step=step
        )
        run.progress(step=step, total_steps=None if options.endless else STEPS)
        if step % 20 == 0:
            iou = best * learnt + chance.gauss(0, 0.008)
            run.log({"val/loss": loss + 0.1 + chance.gauss(0, 0.02), "val/iou": iou}, step=step)
            print(f"step {step}: loss {loss:.3f}, val/iou {iou:.3f}", flush=True)
        if options.show and step % 60 == 0:
            _show(run, step, learnt)
        if step == options.fails_at:
            raise ValueError("shard 7 has 3 columns where 4 were expected")
        if options.endless:
            time.sleep(0.5)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--endless", action="store_true", help="log twice a second until it is stopped")
    parser.add_argument("--show", action="store_true", help="show pictures, tables and the like too")
    parser.add_argument("--fails-at", type=int, help="the step at which it fails")
    return parser.parse_args()


def _show(run: torchyard.Run, step: int, learnt: float) -> None:
    noise = np.random.default_rng(step)
    walls, cracks, found = zip(*(_wall(number, learnt) for number in range(PICTURES)), strict=True)
    captions = [f"wall {number}" for number in range(PICTURES)]
    run.log_image("val/walls", walls, truth=cracks, predicted=found, classes=CLASSES, caption=captions, step=step)
    run.log_histogram("train/weights", noise.normal(0, 0.1 + learnt / 10, 2_000), step=step)
    rows = [[f"wall {number}", round(0.3 + learnt * number / 40, 3), number % 2 == 0] for number in range(24)]
    run.log_table("val/predictions", ["picture", "iou", "kept"], rows, step=step)
    run.log_text("val/report", f"At step {step} the thin cracks are still missed.", step=step)
    right = int(900 * learnt)
    matrix = [[4000, 40, 12], [1000 - right, right, 30], [60, 20, 200 + right // 4]]
    run.log_confusion("val/confusion", matrix, classes=CLASSES, step=step)
    report = Path(os.environ["TORCHYARD_RUN_DIR"]) / "artifacts" / "report.csv"
    report.parent.mkdir(exist_ok=True)
    report.write_text("\n".join(",".join(str(cell) for cell in row) for row in rows))


def _wall(number: int, learnt: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a picture of a wall with a crack, the mask of the crack, and how much of it is found."""
    noise = np.random.default_rng(number)
    wall = (150 + 20 * noise.random((SIDE, SIDE, 3))).astype(np.uint8)
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    for x in range(SIDE):
        y = int(SIDE / 2 + SIDE / 4 * math.sin(x / 14 + number) + noise.integers(-1, 2))
        mask[y : y + 3, x] = 1
    mask[8:20, 8 + 16 * number : 20 + 16 * number] = 2
    wall[mask == 1] = (60, 55, 50)
    wall[mask == 2] = (190, 170, 150)
    found = mask.copy()
    found[:, int(SIDE * learnt) :] = 0
    return wall, mask, found


if __name__ == "__main__":
    main()
