"""The training loop: DDP over one task, with evaluation, checkpoints, exact resume and an agreed stop."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
import logging
import math
import time
from typing import Any, Protocol

import torch
from torch import Tensor, autocast, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from torchyard.errors import ConfigError, NonFiniteLoss
from torchyard.recipes import DistributedConfig, ImageClassification
from torchyard.run import Run
from torchyard.spec import CheckpointPolicy
from trainer.optimization import Schedule, make_optimizer, set_lr
from trainer.randomness import random_state, seed_everything, set_random_state
from trainer.sampler import TrainSampler
from trainer.window import LossWindow
from trainer.world import World

logger = logging.getLogger(__name__)

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Task(Protocol):
    """What a recipe gives to the loop."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The mean over a batch's outputs and targets."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """What a checkpoint needs besides weights to be used elsewhere."""
        ...

    @property
    def samples(self) -> int:
        """In the training split."""
        ...

    def training_batches(self, plan: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]: ...
    def evaluate(self, world: World, *, on_batch: Callable[[], None]) -> dict[str, float]: ...


class Training:
    """One run of a task, from its beginning or from a checkpoint's state to its end. Every rank has the same one.

    Steps are optimizer steps over the whole run; steps and epochs count from 1, and the numbers here are those that
    are done. Raises ConfigError where the configuration cannot work here.
    """

    def __init__(
        self, task: Task, *, config: ImageClassification, policy: CheckpointPolicy, run: Run, world: World
    ) -> None:
        self.task, self.config, self.policy, self.run, self.world = task, config, policy, run, world
        state = run.resume()
        if state is not None:
            task.model.load_state_dict(state["model"])
        self.model = wrap(task.model, config.distributed, world)
        self.optimizer = make_optimizer(task.model, config.optimizer, device=world.device)
        self.precision = resolve_precision(config.training.precision, world.device)
        self.scaler = GradScaler(world.device.type, enabled=self.precision == "fp16")
        self.window = LossWindow(world, config.training.max_nonfinite_steps)
        self.sampler = TrainSampler(
            task.samples,
            batch_size=config.training.per_device_batch_size,
            world_size=world.size,
            rank=world.rank,
            seed=config.training.seed,
        )
        self.step = 0
        self.epoch = 1
        self.position = 0
        """Samples of the epoch that all ranks together have seen."""
        self.metrics: dict[str, float] = {}
        """The newest training metrics."""
        self.best: dict[str, Any] | None = None
        seed_everything(config.training.seed + 1 + world.rank)
        if state is not None:
            self._load(state)
        self.total_steps = self._total_steps()
        self.schedule = Schedule(config.lr_scheduler, config.optimizer.lr, self.total_steps)
        self._clock = time.monotonic()

    def train(self) -> bool:
        """Runs to the end, or to the step at which the ranks stop; False then. Raises NonFiniteLoss and DataError."""
        self._progress()
        while self.step < self.total_steps or self.position:
            if not self._train_epoch():
                self._save(end_of_epoch=False)
                return False
            self._end_epoch()
        self._progress()
        return True

    def _train_epoch(self) -> bool:
        """To the end of the epoch or of the run; False if the ranks stop before."""
        size = self.config.training.gradient_accumulation_steps
        plan = self.sampler.batches(self.epoch, self.position)
        windows = [plan[first : first + size] for first in range(0, len(plan), size)]
        windows = windows[: self.total_steps - self.step]
        batches = self.task.training_batches([batch for window in windows for batch in window])
        self.model.train()
        self._clock = time.monotonic()
        for number, window in enumerate(windows, start=1):
            self._train_step([len(batch) for batch in window], batches)
            last = number == len(windows)
            if last or self.step % self.config.logging.every_steps == 0:
                self._log()
            elif self.window.full:
                self._fetch()
            self._progress()
            if self.run.should_stop():
                return False
            if not last and self.policy.every_steps and self.step % self.policy.every_steps == 0:
                self._save(end_of_epoch=False)
        return True

    def _train_step(self, lengths: list[int], batches: Iterator[tuple[Tensor, Tensor]]) -> None:
        """One optimizer step over micro-batches of `lengths`: the gradient of the mean over all of their samples."""
        samples = sum(lengths)
        loss = torch.zeros((), device=self.world.device)
        set_lr(self.optimizer, self.schedule.lr(self.step + 1, epoch=self.epoch))
        for number, length in enumerate(lengths, start=1):
            inputs, targets = next(batches)
            with nullcontext() if number == len(lengths) else self.model.no_sync():
                with self._autocast():
                    part = self.task.loss(self.model(inputs), targets) * (length / samples)
                self.scaler.scale(part).backward()
            loss += part.detach()
        if self.config.optimizer.clip_grad_norm is not None:
            self.scaler.unscale_(self.optimizer)
            clip_grad_norm_(self.model.parameters(), self.config.optimizer.clip_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.position = min(self.position + len(lengths) * self.sampler.share, self.task.samples)
        self.window.add(loss, samples * self.world.size)

    def _autocast(self) -> autocast | nullcontext[None]:
        dtype = DTYPES.get(self.precision)
        return nullcontext() if dtype is None else autocast(self.world.device.type, dtype=dtype)

    def _fetch(self) -> None:
        """Looks at the losses so far, so that a run whose loss is lost does not go on until the next log line."""
        self.window.sync(self.step)
        if self.window.failure is not None:
            self._log()

    def _log(self) -> None:
        """Means over the window that ends here. A loss that is lost is logged before it fails the run."""
        self.window.sync(self.step)
        now = time.monotonic()
        self.metrics = {
            "train/loss": self.window.mean,
            "train/lr": self.optimizer.param_groups[0]["lr"],
            "train/samples_per_second": self.window.samples / max(now - self._clock, 1e-9),
        }
        self.run.log(self.metrics, step=self.step)
        if self.window.failure is not None:
            raise NonFiniteLoss(self.window.failure)
        self.window.reset()
        self._clock = now

    def _end_epoch(self) -> None:
        """Evaluates and saves, where they are due, after an epoch or, with `max_steps`, at the end of the run."""
        ended = self.sampler.count(self.position) == 0
        final = self.step >= self.total_steps
        measured: dict[str, float] = {}
        if final or self.epoch % self.config.evaluation.every_epochs == 0:
            measured = self._evaluate()
        self._report(measured)
        self._keep_best({**self.metrics, **measured})
        by_epochs = self.policy.every_epochs is not None and self.epoch % self.policy.every_epochs == 0
        by_steps = self.policy.every_steps is not None and self.step % self.policy.every_steps == 0
        if final or by_epochs or by_steps:
            self._save(end_of_epoch=ended, measured=measured)
        self.epoch, self.position = self.epoch + 1, 0

    def _evaluate(self) -> dict[str, float]:
        self.world.broadcast_buffers(self.task.model)
        measured = self.task.evaluate(self.world, on_batch=self._progress)
        self.run.log(measured, step=self.step)
        return measured

    def _report(self, measured: dict[str, float]) -> None:
        shown = "  ".join(f"{key} {value:.4g}" for key, value in {**self.metrics, **measured}.items())
        logger.info("epoch %d/%d  step %d  %s", self.epoch, self.config.training.epochs, self.step, shown)

    def _keep_best(self, measured: dict[str, float]) -> None:
        value = measured.get(self.policy.monitor)
        if value is None or math.isnan(value):
            return
        sign = 1 if self.policy.mode == "max" else -1
        if self.best is None or sign * value > sign * self.best["value"]:
            self.best = {"metric": self.policy.monitor, "value": value, "epoch": self.epoch, "step": self.step}

    def _progress(self) -> None:
        epochs = self.config.training.epochs
        self.run.progress(step=self.step, total_steps=self.total_steps, epoch=min(self.epoch, epochs), epochs=epochs)

    def _total_steps(self) -> int:
        """Those that are done, those that this epoch still has, and those of the epochs after it."""
        training = self.config.training
        size = training.gradient_accumulation_steps
        ahead = training.epochs - self.epoch + 1
        left = -(-self.sampler.count(self.position) // size) + (ahead - 1) * -(-self.sampler.count() // size)
        total = self.step + (left if ahead > 0 else 0)
        return total if training.max_steps is None else min(total, max(training.max_steps, self.step))

    def _save(self, *, end_of_epoch: bool, measured: dict[str, float] | None = None) -> None:
        self.window.sync(self.step)
        self.world.broadcast_buffers(self.task.model)
        metrics = {**self.metrics, **(measured or {})}
        weights = self.task.model.state_dict()
        state = {
            "model": weights,
            "epoch": self.epoch,
            "step": self.step,
            "metrics": metrics,
            "recipe": "image-classification",
            "config": self.config.model_dump(mode="json"),
            **self.task.facts,
            "threads": torch.get_num_threads(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": {"total_steps": self.total_steps},
            "scaler": self.scaler.state_dict(),
            "random": self.world.gather(random_state()),
            "sampler": {"epoch": self.epoch, "samples": self.position, "world_size": self.world.size},
            "end_of_epoch": end_of_epoch,
            "window": self.window.state_dict(),
            "best": self.best,
        }
        self.run.save_checkpoint(
            state, step=self.step, epoch=self.epoch, end_of_epoch=end_of_epoch, metrics=metrics, weights=weights
        )

    def _load(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.window.load_state_dict(state["window"])
        self.step, self.best = state["step"], state["best"]
        self.metrics = {key: value for key, value in state["metrics"].items() if key.startswith("train/")}
        self.epoch, self.position = state["sampler"]["epoch"], state["sampler"]["samples"]
        if state["end_of_epoch"]:
            self.epoch, self.position = self.epoch + 1, 0
        logger.info("resumed at step %d, epoch %d", self.step, self.epoch)
        saved = state["sampler"]["world_size"]
        if saved == self.world.size:
            set_random_state(state["random"][self.world.rank])
            return
        seed_everything(self.config.training.seed + 1 + self.world.rank + self.step)
        self.run.message(
            f"resumed at step {self.step} with {self.world.size} processes instead of {saved}: no sample of the epoch "
            "is repeated or left out, but the batches are of another size and dropout draws anew",
            level="warning",
        )


def wrap(model: nn.Module, config: DistributedConfig, world: World) -> DistributedDataParallel:
    """The model for all ranks, with the weights of rank 0. Raises ConfigError."""
    if config.sync_batchnorm:
        if world.device.type != "cuda":
            raise ConfigError("distributed.sync_batchnorm needs CUDA devices")
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    wrapped = DistributedDataParallel(
        model,
        device_ids=[world.device.index] if world.device.type == "cuda" else None,
        find_unused_parameters=config.find_unused_parameters,
        static_graph=config.static_graph,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        bucket_cap_mb=config.bucket_cap_mb,
    )
    # Training does not read the buffers: they are shared before an evaluation and a checkpoint, not at every step.
    wrapped.broadcast_buffers = False
    return wrapped


def resolve_precision(wanted: str, device: torch.device) -> str:
    """`bf16`, `fp16` or `fp32`."""
    if wanted != "auto":
        return wanted
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_bf16 else "fp32"
