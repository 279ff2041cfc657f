"""torch.nn.DataParallel on all GPUs of one process, as in older guides: `python -m bench.peers.data_parallel`.

It trains the job of $TORCHYARD_CONFIG with the trainer's data and model, and writes the trainer's events.
"""

import os
import time

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from torchyard.run import Run
from trainer.__main__ import read_config
from trainer.optimization import make_optimizer
from trainer.precision import Precision
from trainer.randomness import seed_everything
from trainer.recipes import make_task
from trainer.sampler import TrainSampler
from trainer.schedule import Schedule, set_lr
from trainer.weights.initial import train_mode


def main() -> None:
    run = Run(os.environ)
    config = read_config(run)
    training, device = config.training, run.device
    seed_everything(training.seed)
    task = make_task(config, source=run.data or config.data.source, weights="none", device=device)
    model = nn.DataParallel(task.model)
    optimizer = make_optimizer(task.model, config.optimizer, lr=config.optimizer.lr, device=device)
    precision = Precision(training.precision, device)
    scaler = GradScaler(device.type, enabled=precision.name == "fp16")
    batch = training.per_device_batch_size
    sampler = TrainSampler(task.samples, global_batch=batch, batch_size=batch, seed=training.seed, lengths=task.lengths)
    steps = sampler.count()
    schedule = Schedule(
        config.lr_scheduler,
        base_lr=config.optimizer.lr,
        total_steps=training.epochs * steps,
        steps_per_epoch=steps,
        mode="min",
    )
    step = 0
    for epoch in range(1, training.epochs + 1):
        plan = [samples.micro_batches[0].indices for samples in sampler.steps(epoch)]
        batches = task.training_batches(plan, epoch=epoch)
        train_mode(task.model)
        loss = torch.zeros((), device=device)
        began = time.monotonic()
        for inputs, targets in batches:
            step += 1
            set_lr(optimizer, schedule.lr(step, epochs=(step - 1) / steps))
            with precision.autocast():
                loss: Tensor = task.loss(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        last = loss.item()  # waits for the device
        speed = task.samples / (time.monotonic() - began)
        run.log({"train/loss": last, "train/samples_per_second": speed}, step=step)
        run.log(task.evaluate(None, on_batch=lambda: None).metrics, step=step)
    run.close()


if __name__ == "__main__":
    main()
