"""The training loop: one task on all ranks, with evaluation, checkpoints, exact resume and an agreed stop."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
import logging
import math
from typing import Any

import torch

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import Recipe
from torchyard.contract.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.card import Card, describe
from trainer.learner import Learner
from trainer.memory import fitting_batch
from trainer.models.initial import train_mode
from trainer.optimization import scaled_lr
from trainer.precision import Precision
from trainer.randomness import random_state, seed_everything, set_random_state
from trainer.report import Report
from trainer.sampler import TrainSampler
from trainer.schedule import Schedule
from trainer.soundness import unfit
from trainer.stopping import EarlyStopping
from trainer.task import Evaluation, Task
from trainer.window import LossWindow
from trainer.world import World

logger = logging.getLogger(__name__)

ASK_EVERY = 16
"""Batches of an evaluation between two looks for a stop."""


class Training:
    """One run of a task, from its beginning or from a checkpoint's state to its end. Every rank has the same one.

    Steps are optimizer steps over the whole run; steps and epochs count from 1, and the numbers here are those that
    are done. Raises ConfigError where the configuration cannot work here.
    """

    def __init__(
        self,
        task: Task,
        *,
        trainer: str,
        config: Recipe,
        policy: CheckpointPolicy,
        run: Run,
        world: World,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.task, self.trainer, self.config, self.policy = task, trainer, config, policy
        self.run, self.world = run, world
        self._parameters = frozenset(name for name, _ in task.model.named_parameters(remove_duplicate=False))
        self.step = 0
        self.epoch = 1
        self.position = 0
        """Samples of the epoch that all ranks together have seen."""
        self.ended = False
        """Whether nothing is left to do."""
        self.best: dict[str, Any] | None = None
        if state is not None:
            task.model.load_state_dict(state["raw"] or state["model"])
        training = config.training
        precision = Precision(training.precision, world.device)
        self.sampler = self._sampler(state, precision)
        self.base_lr = scaled_lr(
            config.optimizer,
            global_batch=self.sampler.global_batch,
            per_device_batch=training.per_device_batch_size,
        )
        self.report = Report(
            run,
            card=self._describe(precision),
            window=LossWindow(world, training.max_nonfinite_steps),
            device=world.device,
        )
        self.learner = Learner(task, config=config, world=world, precision=precision, lr=self.base_lr)
        self.stopping = EarlyStopping(config.early_stopping) if config.early_stopping else None
        seed_everything(training.seed + 1 + world.rank)
        if state is not None:
            self._load(state)
        self.total_steps = self._total_steps()
        self.schedule = Schedule(
            config.lr_scheduler, base_lr=self.base_lr, total_steps=self.total_steps, mode=policy.mode
        )
        if state is not None:
            self.schedule.load_state_dict(state["schedule"])

    def train(self) -> bool:
        """Runs to the end, or to the step at which the ranks stop; False then. Raises NonFiniteLoss and DataError."""
        self.report.introduce(
            self.task.description, config=self.config, base_lr=self.base_lr, total_steps=self.total_steps
        )
        self._progress()
        while not self.ended and (self.position or self.step < self.total_steps):
            if not (self._train_epoch() and self._end_epoch()):
                self._save(stop=True)
                return False
        self._progress()
        return True

    def _train_epoch(self) -> bool:
        """To the end of the epoch or of the run; False if the ranks stop before."""
        windows = self.sampler.windows(self.epoch, self.position)[: self.total_steps - self.step]
        plan = [share.indices for window in windows for share in window.shares]
        batches = self.task.training_batches(plan, epoch=self.epoch)
        train_mode(self.task.model)
        self.report.begin()
        for number, window in enumerate(windows, start=1):
            lr = self.schedule.lr(self.learner.updates + 1, epoch=self.epoch)
            measured = self.learner.step(self.step + 1, window, batches, lr=lr)
            self.step += 1
            self.position += window.samples
            self.report.window.add(measured, window.samples)
            last = number == len(windows)
            if last or self.step % self.config.logging.every_steps == 0:
                self.learner.discount(self.report.log(self.step, lr=lr))
            self._progress()
            if self.learner.strategy.together and self.run.should_stop():
                return False
            if not last and self.policy.every_steps and self.step % self.policy.every_steps == 0:
                self._save()
        return True

    def _end_epoch(self) -> bool:
        """Evaluates and saves, where they are due, after an epoch or at the end of the run; False if the ranks stop."""
        whole = self.sampler.count(self.position) == 0
        final = self.step >= self.total_steps
        evaluation = Evaluation({})
        if final or self.epoch % self.config.evaluation.every_epochs == 0:
            try:
                evaluation = self._evaluate()
            except _StopAsked:
                return False
            self._decide(evaluation.metrics)
        self.report.epoch(evaluation.metrics, epoch=self.epoch, epochs=self.config.training.epochs, step=self.step)
        self._keep_best({**self.report.metrics, **evaluation.metrics})
        by_epochs = self.policy.every_epochs is not None and self.epoch % self.policy.every_epochs == 0
        by_steps = self.policy.every_steps is not None and self.step % self.policy.every_steps == 0
        self.ended = self.ended or final
        if self.ended or by_epochs or by_steps:
            self._save(end_of_epoch=whole, evaluation=evaluation)
        self.epoch, self.position = self.epoch + 1, 0
        return True

    def _evaluate(self) -> Evaluation:
        """Of the averaged weights, where there are any. What is decided by it is decided once, by rank 0's values."""
        self.learner.settle()
        with self.learner.averaged():
            evaluation = self.task.evaluate(
                self.world,
                on_batch=_Asking(self.run, self.world, self._progress),
                batch_size=min(self.sampler.batch_size, self.config.training.per_device_batch_size),
            )
        evaluation = replace(evaluation, metrics=self.world.agree(evaluation.metrics))
        self.run.log(evaluation.metrics, step=self.step)
        return evaluation

    def _decide(self, measured: Mapping[str, float]) -> None:
        """Whether the learning rate drops, or the run ends early."""
        self.schedule.observe(measured.get(self.policy.monitor), update=self.learner.updates)
        if self.stopping is not None and self.stopping.observe(measured, epoch=self.epoch):
            self.ended = True
            self.report.say(self.stopping.reason)

    def _keep_best(self, measured: Mapping[str, float]) -> None:
        value = measured.get(self.policy.monitor)
        if value is None or math.isnan(value):
            return
        sign = 1 if self.policy.mode == "max" else -1
        if self.best is None or sign * value > sign * self.best["value"]:
            self.best = {"metric": self.policy.monitor, "value": value, "epoch": self.epoch, "step": self.step}

    def _progress(self) -> None:
        epochs = self.config.training.epochs
        self.run.progress(step=self.step, total_steps=self.total_steps, epoch=min(self.epoch, epochs), epochs=epochs)

    def _describe(self, precision: Precision) -> Card:
        sampler = self.sampler
        return replace(
            describe(self.task, config=self.config, world=self.world, precision=precision.name),
            global_batch=sampler.global_batch,
            per_device_batch_size=sampler.batch_size,
            gradient_accumulation_steps=-(-sampler.global_batch // (sampler.batch_size * self.world.size)),
        )

    def _sampler(self, state: Mapping[str, Any] | None, precision: Precision) -> TrainSampler:
        """The global batch is that of the run's beginning; a micro-batch is what the memory holds."""
        training, size = self.config.training, self.world.size
        asked = training.per_device_batch_size
        global_batch = asked * training.gradient_accumulation_steps * size
        if state is not None:
            global_batch, asked = state["sampler"]["global_batch"], min(asked, state["sampler"]["batch_size"])
        batch_size = tried = min(asked, -(-global_batch // size))
        if training.auto_batch:
            batch_size = fitting_batch(
                self.task, batch_size=tried, config=self.config, precision=precision, world=self.world
            )
        if batch_size < tried:
            self.run.message(
                f"a micro-batch of {tried} does not fit the memory: it is {batch_size}, more of them make an optimizer "
                f"step, and the global batch stays {global_batch}",
                level="warning",
            )
        if self.config.distributed.static_graph:
            if global_batch > batch_size * size:
                raise ConfigError(
                    f"distributed.static_graph cannot accumulate, which a global batch of {global_batch} asks for on "
                    f"{size} processes: resume on more of them, or submit a new job without it"
                )
            batch_size += 2  # a window that takes a short tail stays one micro-batch
        return TrainSampler(
            self.task.samples,
            global_batch=global_batch,
            batch_size=batch_size,
            world_size=size,
            rank=self.world.rank,
            seed=training.seed,
        )

    def _total_steps(self) -> int:
        """Those that are done, those that this epoch still has, and those of the epochs after it."""
        training = self.config.training
        ahead = training.epochs - self.epoch + 1
        left = self.sampler.count(self.position) + (ahead - 1) * self.sampler.count()
        total = self.step + (left if ahead > 0 else 0)
        return total if training.max_steps is None else min(total, max(training.max_steps, self.step))

    def _save(self, *, stop: bool = False, end_of_epoch: bool = False, evaluation: Evaluation | None = None) -> None:
        """Publishes a checkpoint. The ranks settle in it, but at a stop: from there on, all is as without one."""
        self.report.check(self.step)
        own = self.learner.own() if stop else None
        self.learner.settle()
        learned = self.learner.state_dict(own or self.learner.own())
        evaluation = evaluation or Evaluation({})
        metrics = {**self.report.metrics, **evaluation.metrics}
        config = self.config.model_dump(mode="json")
        state = {
            **self.task.metadata,
            **learned,
            "epoch": self.epoch,
            "step": self.step,
            "metrics": metrics,
            "recipe": self.trainer,
            "config": config,
            "data_hash": self.task.data_hash,
            "split_hash": self.task.split_hash,
            "threads": torch.get_num_threads(),
            "schedule": self.schedule.state_dict(),
            "early_stopping": self.stopping.state_dict() if self.stopping else None,
            "ended": self.ended,
            "random": self.world.gather(random_state()),
            "sampler": {
                "epoch": self.epoch,
                "samples": self.position,
                "world_size": self.world.size,
                "global_batch": self.sampler.global_batch,
                "batch_size": self.sampler.batch_size,
            },
            "end_of_epoch": end_of_epoch,
            "window": self.report.window.state_dict(),
            "best": self.best,
        }
        card = self.report.card.as_dict()
        self.run.card(card)
        self.run.save_checkpoint(
            state,
            step=self.step,
            epoch=self.epoch,
            end_of_epoch=end_of_epoch,
            metrics=metrics,
            weights=learned["model"],
            files={**self.task.files, **evaluation.files},
            card={**card, "trainer": self.trainer, "config": config},
            background=not stop,
            unfit=partial(unfit, parameters=self._parameters),
        )

    def _load(self, state: Mapping[str, Any]) -> None:
        self.learner.load_state_dict(state)
        self.report.window.load_state_dict(state["window"])
        if self.stopping is not None and state["early_stopping"] is not None:
            self.stopping.load_state_dict(state["early_stopping"])
        self.step, self.best, self.ended = state["step"], state["best"], state["ended"]
        self.report.metrics = {key: value for key, value in state["metrics"].items() if key.startswith("train/")}
        self.epoch, self.position = state["sampler"]["epoch"], state["sampler"]["samples"]
        if state["end_of_epoch"]:
            self.epoch, self.position = self.epoch + 1, 0
        logger.info("resumed at step %d, epoch %d", self.step, self.epoch)
        before = state["sampler"]["world_size"]
        if before == self.world.size:
            set_random_state(state["random"][self.world.rank])
            return
        seed_everything(self.config.training.seed + 1 + self.world.rank + self.step)
        self.run.message(
            f"resumed at step {self.step} with {self.world.size} processes instead of {before}: the global batch stays "
            f"{self.sampler.global_batch}, no sample of the epoch is repeated or left out, but dropout draws anew",
            level="warning",
        )


class _StopAsked(Exception):
    """Leaves an evaluation, on all ranks at the same batch."""


class _Asking:
    """Called after each batch of an evaluation, which all ranks have equally many of."""

    def __init__(self, run: Run, world: World, progress: Callable[[], None]) -> None:
        self._run, self._world, self._progress, self._calls = run, world, progress, 0

    def __call__(self) -> None:
        self._progress()
        self._calls += 1
        if self._calls % ASK_EVERY == 0 and self._world.any(self._run.stop_requested):
            raise _StopAsked
