"""A training run from top to bottom: build, epochs, one step, evaluate, save, resume.

`trainer.__main__` makes the task (model, data and loss) and calls `train` on every rank. All ranks do the same.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
import logging
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from torchyard.contract.recipes import Recipe
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.models.checkpoint import FORMAT
from torchyard.run import Run
from torchyard.run.tensors import on_host
from torchyard.run.together import Ranks
from trainer.averaging import ExponentialAverage, Lookahead
from trainer.batching import make_sampler
from trainer.card import describe, of_checkpoint
from trainer.compilation import compile_in_place
from trainer.contents import Contents
from trainer.finiteness import names_to_check, nonfinite_weights
from trainer.meeting import make_meeting
from trainer.metrics import Step
from trainer.optimization import make_optimizer, scaled_lr
from trainer.parallel import make_strategy
from trainer.parallel.fsdp import fill_shards, shard_optimizer
from trainer.parallel.gathering import bytes_in_shards, gathered, shards
from trainer.precision import Precision
from trainer.randomness import derived_seed, random_state, resume_random_state, seed_everything, set_random_state
from trainer.report import Report
from trainer.sampler import Position, StepSamples, load_steps
from trainer.schedule import Schedule, set_lr
from trainer.skipping import Statistics, take_step
from trainer.stopping import Best, EarlyStopping, StopCheck, StopRequested
from trainer.task import Evaluation, Task
from trainer.weights.initial import train_mode
from trainer.weights.starting import load_weights
from trainer.world import World

logger = logging.getLogger(__name__)


class Training:
    """One run of a task, from its beginning or from a checkpoint. Every rank has the same one.

    It stops where it is asked to from outside, and pauses by itself where its specification says so. With a `local`
    strategy, weights and optimizer differ between ranks until `_sync_ranks`.
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
        """Prepares the run; `state` is that of a checkpoint. A collective.

        Raises ConfigError if the configuration cannot work, and DataError if the data is not that of the checkpoint.
        """
        self.task, self.config, self.policy, self.run, self.world = task, config, policy, run, world
        self._trainer, self._score = trainer, task.score
        self.contents = Contents(task, source=config.data.source, run=run, world=world)
        self.contents.check(state)
        if state is not None:
            load_weights(task, state["raw"] or state["model"])  # whole: the rest follows when the model is sharded
        training, distributed = config.training, config.distributed
        self.precision = precision = Precision(training.precision, world.device)
        self.sampler = make_sampler(task, config=config, precision=precision, world=world, run=run, state=state)
        self.position = Position(self.sampler, training)
        data_hash = self.contents.data_hash
        # Before the strategy shards the model, as the card counts its parameters.
        card = describe(task, sampler=self.sampler, world=world, precision=precision.name, data_hash=data_hash)
        self.report = Report(run, card=card, world=world, score=task.score, max_nonfinite=training.max_nonfinite_steps)
        if training.compile:
            compile_in_place(task.model)
        self.strategy = make_strategy(task.model, distributed, world, compute=precision.dtype, unfilled=task.unfilled)
        self._rank_wait = make_meeting(task.model, distributed, world)  # times the exchanges with the other ranks
        self._in_sync = False  # whether `_sync_ranks` was called after the last step
        self._parameters = tuple(task.model.parameters())  # a walk through the modules costs a thousand calls a step
        self._statistics = Statistics(task.model)
        self._checked = names_to_check(task.model)  # what must be finite in a checkpoint

        global_batch, batch_size = self.sampler.global_batch, training.per_device_batch_size
        self.base_lr = scaled_lr(config.optimizer, global_batch=global_batch, per_device_batch=batch_size)
        self.optimizer = make_optimizer(task.model, config.optimizer, lr=self.base_lr, device=world.device)
        self.lookahead = Lookahead(task.model, config.optimizer.lookahead) if config.optimizer.lookahead else None
        self.ema = ExponentialAverage(task.model, config.ema) if config.ema else None
        self.schedule = Schedule(
            config.lr_scheduler,
            base_lr=self.base_lr,
            total_steps=self.position.total_steps,
            steps_per_epoch=self.sampler.count(),
            mode=policy.mode,
        )
        self.stopping = EarlyStopping(config.early_stopping) if config.early_stopping else None
        self.best = Best(policy)

        seed_everything(derived_seed(training.seed, world.rank))
        if state is not None:
            self.load_state_dict(state)

    def train(self) -> bool:
        """Trains to the end of the run. Returns False if it stops before. Raises NonFiniteLoss and DataError."""
        position, total = self.position, self.position.total_steps
        with self.contents:  # which hashes the data meanwhile
            self.report.introduce(self.task.description, config=self.config, base_lr=self.base_lr, total_steps=total)
            self._report_progress()
            while not position.ended and (position.samples or position.step < position.total_steps):
                if self._pauses():
                    return False
                if not (self._train_epoch() and self._end_epoch()):
                    self.save(at_stop=True, evaluation=self._evaluate_at_pause())
                    return False
            self._report_progress()
            return True

    def _train_epoch(self) -> bool:
        """Trains to the end of the epoch or of the run. Returns False if the ranks stop before."""
        position, report = self.position, self.report
        plan = self.sampler.steps(position.epoch, position.samples)[: position.total_steps - position.step]
        steps = load_steps(self.task, plan, epoch=position.epoch)
        train_mode(self.task.model)
        report.restart_clock(whole_epoch=len(plan) == self.sampler.count())
        for number, taken in enumerate(steps, start=1):
            lr = self.schedule.lr(position.step + 1, epochs=position.epochs)
            measured = self.train_step(position.step + 1, taken, lr=lr)
            position.advance(taken.samples)
            report.steps.add(measured, samples=taken.samples, total=taken.total)
            last = number == len(plan)
            if last or position.step % self.config.logging.every_steps == 0:
                report.log(position.step, lr=lr, rank_wait=self._rank_wait.take())
            else:
                report.poll()
            self._report_progress()
            is_due = not last and _is_due(position.step, self.policy.every_steps)
            if is_due:
                self._sync_ranks()  # as the save does, which a stop here leaves out
            if not last and self._pauses():
                return False
            if self.strategy.in_step and self.run.should_stop():
                return False
            if is_due:
                self.save()
        return True

    def _end_epoch(self) -> bool:
        """Evaluates and saves if that is due at the end of an epoch or of the run. Returns False if the ranks stop."""
        position = self.position
        self.report.raise_if_nonfinite(position.step)
        last = position.step >= position.total_steps
        evaluation, stops_early = Evaluation({}), False
        if last or position.epoch % self.config.evaluation.every_epochs == 0:
            try:
                evaluation = self._evaluate()
            except StopRequested:
                return False
            self.schedule.observe(evaluation.metrics.get(self.policy.monitor), step=position.step)
            if self.stopping is not None and self.stopping.observe(evaluation.metrics, epoch=position.epoch):
                self.report.message(self.stopping.reason)
                stops_early = True
        epochs = self.config.training.epochs
        self.report.log_epoch(evaluation.metrics, epoch=position.epoch, epochs=epochs, step=position.step)
        self.best.observe({**self.report.metrics, **evaluation.metrics}, epoch=position.epoch, step=position.step)
        position.complete_epoch(end_run=last or stops_early)
        if position.ended:
            self.contents.finish()
        pauses = not position.ended and self._pauses()
        if pauses and not evaluation.metrics:
            evaluation = self._evaluate_at_pause() or evaluation
        every_epochs, every_steps = self.policy.every_epochs, self.policy.every_steps
        if position.ended or _is_due(position.epoch, every_epochs) or _is_due(position.step, every_steps):
            self.save(evaluation=evaluation)
        elif pauses:
            self.save(at_stop=True, evaluation=evaluation)
        position.begin_next_epoch()
        return True

    def _pauses(self) -> bool:
        """Whether the run pauses here by itself. All ranks get the same answer."""
        return self.run.pauses_at(step=self.position.step, epochs=self.position.whole_epochs)

    def _report_progress(self) -> None:
        self.run.progress(**self.position.progress)

    def train_step(self, number: int, samples: StepSamples, *, lr: float) -> Step:
        """Takes optimizer step `number` along the gradient of the mean loss over what all ranks' samples count.

        If the loss or the gradient norm is not finite, the step changes nothing: no weights, moments, statistics of
        batch norms or averages, and it does not count in the score. Waits for the device only with an optimizer that
        is not fused.
        """
        self._in_sync = False
        set_lr(self.optimizer, lr)
        self._statistics.keep()
        loss = self._backward(samples)
        self._rank_wait.leave()  # this rank's last gradient began it; with a local strategy nothing was exchanged
        scale = self.precision.scale  # that of this step
        self.precision.unscale(self.optimizer)
        norm = gradient_norm(self._parameters)
        if self.config.optimizer.clip_grad_norm is not None:
            clip_grads_with_norm_(self._parameters, self.config.optimizer.clip_grad_norm, norm)
        skipped = take_step(self.optimizer, norm=norm)
        self.precision.update(skipped)
        self._statistics.restore(skipped=skipped)
        if self._score is not None:
            self._score.end_step(skipped=skipped)
        self.optimizer.zero_grad(set_to_none=True)
        # In this order, so that the average follows the weights after Lookahead.
        if self.lookahead:
            self.lookahead.update(number, skipped=skipped)
        if self.ema:
            self.ema.update(number, skipped=skipped)
        if self.strategy.local:
            self._rank_wait.arrive()
        self.strategy.after_step(number, skipped=skipped)
        if self.strategy.local:
            self._rank_wait.leave()
        return Step(loss, norm, scale)

    def _backward(self, samples: StepSamples) -> Tensor:
        """Computes the gradients of a step. Returns its loss, detached: the mean of what the ranks return."""
        loss_sum: Tensor | None = None
        scale = 1.0 if self.precision.scale is None else self.precision.scale
        for batch, weight, last in samples.weighted(self.world.size):
            statistics = nullcontext() if weight else self._statistics.untouched()  # 0: a stand-in for no samples
            with self.strategy.micro_batch(last=last), statistics:
                with self.precision.autocast():
                    outputs = self.strategy.model(batch.inputs)
                    loss = self.task.loss(outputs, batch.targets)
                    if self.precision.scale is not None:
                        loss = loss.float()  # the first scale, 65,536, is infinite in fp16
                if self._score is not None and weight:
                    self._score.add(outputs, batch.targets)
                del outputs  # the loss has kept what it needs of them
                value = loss.detach()
                # The gradient is NaN if the loss is not finite: ranks that average gradients all see it.
                loss.backward(value * 0 + scale * weight)
            part = value if weight == 1.0 else value * weight
            loss_sum = part if loss_sum is None else loss_sum + part
        assert loss_sum is not None, "a step has a micro-batch"
        return loss_sum

    def _evaluate(self) -> Evaluation:
        """Evaluates the averaged weights if there are any. Returns rank 0's metrics. Raises StopRequested."""
        self._sync_ranks()
        with self.ema.applied() if self.ema else nullcontext(), self.precision.evaluation():
            evaluation = self.task.evaluate(
                self.world,
                on_batch=StopCheck(self.run, self.world, self._report_progress),
                batch_size=min(self.sampler.batch_size, self.config.training.per_device_batch_size),
            )
        return self.report.log_evaluation(evaluation, step=self.position.step)

    def _evaluate_at_pause(self) -> Evaluation | None:
        """Evaluates where the run pauses and none is due: runs are compared there. It goes on as without."""
        if not self._pauses() or self.strategy.local:  # an evaluation would make the ranks' weights equal
            return None
        before = random_state()
        try:
            return self._evaluate()
        except StopRequested:
            return None
        finally:
            set_random_state(before)

    def save(self, *, at_stop: bool = False, evaluation: Evaluation | None = None) -> None:
        """Publishes a checkpoint, with the result of an evaluation of these weights. A collective.

        `at_stop`: waits until it is written. Raises NonFiniteLoss.
        """
        position, report, config = self.position, self.report, self.config.model_dump(mode="json")
        report.raise_if_nonfinite(position.step)
        evaluation = evaluation or Evaluation({})
        metrics = {**report.metrics, **evaluation.metrics}
        state: dict[str, Any] = {
            **self.task.metadata,
            "format": FORMAT,
            "recipe": self._trainer,
            "config": config,
            **self.contents.state_dict(),
            "threads": torch.get_num_threads(),
            **self.state_dict(at_stop=at_stop),
            "metrics": metrics,
        }
        card = {**report.card.as_dict(), "data_hash": self.contents.data_hash}  # which the state has just collected
        self.run.card(card)
        in_parts = self._saves_in_parts(state)
        saved = shards(state) if in_parts else gathered(state, self.world)
        self.run.save_checkpoint(
            saved,
            step=position.step,
            epoch=position.epoch,
            end_of_epoch=position.end_of_epoch,
            metrics=metrics,
            weights=None if in_parts else saved["model"],
            files={**self.task.files, **evaluation.files},
            card=of_checkpoint(card, trainer=self._trainer, config=config),
            background=not at_stop,
            unfit=partial(nonfinite_weights, names=self._checked),
            owned=saved is not state and not in_parts,
            ranks=Ranks(self.world.rank, self.world.size, self.world.gather) if in_parts else None,
        )

    def _saves_in_parts(self, state: Mapping[str, Any]) -> bool:
        """Whether each rank writes its own part of the state: it has shards, and is large. All ranks say the same."""
        above = self.run.shard_above
        return above is not None and self.world.size > 1 and bytes_in_shards(state) > above

    def state_dict(self, *, at_stop: bool) -> dict[str, Any]:
        """Synchronizes the ranks and returns what an exact resume restores, by the keys of `state.pt`. A collective.

        `model` has the weights to evaluate. Of shards each rank returns its own. `at_stop`: what differs between the
        ranks is taken before they are synchronized. The next attempt then continues as if there had been no stop.
        """
        before = self._rank_local_state() if at_stop else None
        self._sync_ranks()
        rank_local = before or self._rank_local_state()
        raw = self.task.model.state_dict()
        return {
            "model": self.ema.tensors if self.ema else raw,
            "raw": raw if self.ema else None,
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.precision.state_dict(),
            "slow": self.lookahead.tensors if self.lookahead else None,
            "strategy": self.strategy.state_dict(),
            "own": self.world.collect(rank_local) if self.strategy.local else None,
            **self.position.state_dict(),
            **self.report.state_dict(),
            "schedule": self.schedule.state_dict(),
            "early_stopping": self.stopping.state_dict() if self.stopping else None,
            "best": self.best.state_dict(),
            "random": self.world.gather(random_state()),
        }

    def _sync_ranks(self) -> None:
        """Gives all ranks the same weights, EMA and buffers, once after each step. A collective."""
        if not self._in_sync:
            self.strategy.sync_ranks(*([self.ema.tensors] if self.ema else []))
            self._in_sync = True

    def _rank_local_state(self) -> dict[str, Any] | None:
        """Returns a copy of the state that differs between ranks, or None if the strategy keeps the ranks equal."""
        if not self.strategy.local:
            return None
        differing = {
            "model": self.task.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.ema.tensors if self.ema else None,
            "lookahead": self.lookahead.tensors if self.lookahead else None,
        }
        copied, wait = on_host(differing, clone=True)
        wait()
        return copied

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of as many ranks or of others. The model had its weights before it was sharded."""
        own = state["own"][self.world.rank] if len(state["own"] or ()) == self.world.size else None
        if own is not None:
            self.task.model.load_state_dict(own["model"])
        self.optimizer.load_state_dict(shard_optimizer(own["optimizer"] if own else state["optimizer"], self.optimizer))
        self.precision.load_state_dict(state["scaler"])
        if self.ema and state["raw"]:
            fill_shards(self.ema.tensors, own["ema"] if own else state["model"])
        if self.lookahead and state["slow"]:
            fill_shards(self.lookahead.tensors, own["lookahead"] if own else state["slow"])
        self.strategy.load_state_dict(state["strategy"])
        self.position.load_state_dict(state)
        self.report.load_state_dict(state)
        self.schedule.total_steps = self.position.total_steps
        self.schedule.load_state_dict(state["schedule"])
        if self.stopping is not None and state["early_stopping"] is not None:
            self.stopping.load_state_dict(state["early_stopping"])
        self.best.load_state_dict(state["best"])
        logger.info("resumed at step %d, epoch %d", self.position.step, self.position.epoch)
        # Last, as nothing may draw random numbers after it.
        warning = resume_random_state(state, self.world, seed=self.config.training.seed)
        if warning is not None:
            self.report.warn(warning)


def _is_due(number: int, every: int | None) -> bool:
    return every is not None and number % every == 0


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Returns the norm of all gradients, on the device; the same on ranks that average them. A collective of shards."""
    norm = get_total_norm([item.grad for item in parameters if item.grad is not None])
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
