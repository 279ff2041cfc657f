"""The training loop: epochs of one task on all ranks, with evaluation, checkpoints, exact resume and an agreed stop."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torchyard.contract.recipes import Recipe
from torchyard.contract.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.batching import make_sampler
from trainer.best import Best
from trainer.card import describe
from trainer.checkpoints import Checkpoints
from trainer.contents import Contents
from trainer.learner import Learner
from trainer.optimization import scaled_lr
from trainer.position import Position
from trainer.precision import Precision
from trainer.randomness import derived_seed, random_state, seed_everything, set_random_state
from trainer.report import Report
from trainer.schedule import Schedule
from trainer.state import RunState
from trainer.stopping import EarlyStopping
from trainer.task import Evaluation, Task
from trainer.weights.initial import train_mode
from trainer.weights.starting import load_weights
from trainer.window import LossWindow
from trainer.world import World

STOP_CHECK_BATCHES = 16
"""Batches of an evaluation between two checks for a stop request."""


class Training:
    """One run of a task, from its beginning or from a checkpoint. Every rank has the same one."""

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
        """Prepares the run; `state` is that of a checkpoint.

        Raises ConfigError if the configuration cannot work, and DataError if the data is not that of the checkpoint.
        """
        self.task, self.config, self.policy, self.run, self.world = task, config, policy, run, world
        self.contents = Contents(task, source=config.data.source, run=run, world=world)
        self.contents.check(state)
        if state is not None:
            load_weights(task, state["raw"] or state["model"])
        training = config.training
        precision = Precision(training.precision, world.device)
        self.sampler = make_sampler(task, config=config, precision=precision, world=world, run=run, state=state)
        self.base_lr = scaled_lr(
            config.optimizer,
            global_batch=self.sampler.global_batch,
            per_device_batch=training.per_device_batch_size,
        )
        self.state = self._new_state(precision)
        self.checkpoints = Checkpoints(
            task, trainer=trainer, config=config, run=run, state=self.state, contents=self.contents
        )
        seed_everything(derived_seed(training.seed, world.rank))
        if state is not None:
            self.state.load_state_dict(state)

    def _new_state(self, precision: Precision) -> RunState:
        """Returns a run at its beginning. The report counts the parameters before the learner shards them."""
        training, world = self.config.training, self.world
        card = describe(
            self.task,
            sampler=self.sampler,
            world=world,
            precision=precision.name,
            data_hash=self.contents.data_hash,
        )
        window = LossWindow(world, training.max_nonfinite_steps, self.task.score)
        report = Report(self.run, card=card, window=window, world=world)
        learner = Learner(self.task, config=self.config, world=world, precision=precision, lr=self.base_lr)
        position = Position(self.sampler, training)
        return RunState(
            learner=learner,
            position=position,
            schedule=Schedule(
                self.config.lr_scheduler,
                base_lr=self.base_lr,
                total_steps=position.total_steps,
                steps_per_epoch=self.sampler.count(),
                mode=self.policy.mode,
            ),
            stopping=EarlyStopping(self.config.early_stopping) if self.config.early_stopping else None,
            best=Best(self.policy),
            report=report,
            world=world,
            seed=training.seed,
        )

    @property
    def learner(self) -> Learner:
        """The model, its optimizer and its averages."""
        return self.state.learner

    @property
    def position(self) -> Position:
        """How far the run is."""
        return self.state.position

    @property
    def report(self) -> Report:
        """What users see of the run."""
        return self.state.report

    def train(self) -> bool:
        """Trains to the end of the run. Returns False if it stops before. Raises NonFiniteLoss and DataError."""
        self.contents.start()
        try:
            return self._train()
        finally:
            self.contents.close()

    def _train(self) -> bool:
        position = self.position
        self.report.introduce(
            self.task.description, config=self.config, base_lr=self.base_lr, total_steps=position.total_steps
        )
        self._report_progress()
        while not position.ended and (position.samples or position.step < position.total_steps):
            if self._pauses():
                return False
            if not (self._train_epoch() and self._end_epoch()):
                self.checkpoints.save(at_stop=True, evaluation=self._evaluate_at_pause())
                return False
        self._report_progress()
        return True

    def _train_epoch(self) -> bool:
        """Trains to the end of the epoch or of the run. Returns False if the ranks stop before."""
        position, learner, report = self.position, self.learner, self.report
        windows = self.sampler.windows(position.epoch, position.samples)[: position.total_steps - position.step]
        whole_epoch = len(windows) == self.sampler.count()
        plan = [micro_batch.indices for window in windows for micro_batch in window.micro_batches]
        batches = self.task.training_batches(plan, epoch=position.epoch)
        train_mode(self.task.model)
        report.restart_clock(whole_epoch=whole_epoch)
        for number, window in enumerate(windows, start=1):
            lr = self.state.schedule.lr(position.step + 1, epochs=position.epochs)
            measured = learner.step(position.step + 1, window, batches, lr=lr)
            position.advance(window.samples)
            report.window.add(measured, samples=window.samples, total=window.total)
            last = number == len(windows)
            if last or position.step % self.config.logging.every_steps == 0:
                report.log(position.step, lr=lr, rank_wait=learner.waited_for_ranks())
            else:
                report.poll()
            self._report_progress()
            if not last and self._pauses():
                return False
            if learner.strategy.in_step and self.run.should_stop():
                return False
            if not last and self._is_due(position.step, self.policy.every_steps):
                self.checkpoints.save()
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
            stops_early = self._observe(evaluation.metrics)
        self.report.log_epoch(
            evaluation.metrics, epoch=position.epoch, epochs=self.config.training.epochs, step=position.step
        )
        metrics = {**self.report.metrics, **evaluation.metrics}
        self.state.best.observe(metrics, epoch=position.epoch, step=position.step)
        position.complete_epoch(end_run=last or stops_early)
        if position.ended:
            self.contents.finish()
        pauses = not position.ended and self._pauses()
        if pauses and not evaluation.metrics:
            evaluation = self._evaluate_at_pause() or evaluation
        if (
            position.ended
            or self._is_due(position.epoch, self.policy.every_epochs)
            or self._is_due(position.step, self.policy.every_steps)
        ):
            self.checkpoints.save(evaluation=evaluation)
        elif pauses:
            self.checkpoints.save(at_stop=True, evaluation=evaluation)
        position.begin_next_epoch()
        return True

    def _pauses(self) -> bool:
        """Whether the run pauses here by itself. All ranks get the same answer."""
        return self.run.pauses_at(step=self.position.step, epochs=self.position.whole_epochs)

    def _evaluate_at_pause(self) -> Evaluation | None:
        """Evaluates where the run pauses and no evaluation is due, as it is compared there. Its course is the same."""
        if not self._pauses() or self.learner.strategy.local:  # an evaluation would make the ranks' weights equal
            return None
        before = random_state()
        try:
            return self._evaluate()
        except StopRequested:
            return None
        finally:
            set_random_state(before)

    def _evaluate(self) -> Evaluation:
        """Evaluates the averaged weights if there are any. Every rank returns the metrics of rank 0.

        Raises StopRequested.
        """
        self.learner.sync_ranks()
        with self.learner.averaged(), self.learner.precision.evaluation():
            evaluation = self.task.evaluate(
                self.world,
                on_batch=StopCheck(self.run, self.world, self._report_progress),
                batch_size=min(self.sampler.batch_size, self.config.training.per_device_batch_size),
            )
        evaluation = replace(evaluation, metrics=self.world.numbers_from_rank_0(evaluation.metrics))
        self.run.log(evaluation.metrics, step=self.position.step)
        if self.world.rank == 0:
            evaluation.show(self.run, self.position.step)
        return evaluation

    def _observe(self, metrics: Mapping[str, float]) -> bool:
        """Gives the metrics to the schedule and to early stopping. Returns whether the run ends early."""
        self.state.schedule.observe(metrics.get(self.policy.monitor), step=self.position.step)
        stopping = self.state.stopping
        if stopping is None or not stopping.observe(metrics, epoch=self.position.epoch):
            return False
        self.report.message(stopping.reason)
        return True

    def _report_progress(self) -> None:
        position, epochs = self.position, self.config.training.epochs
        self.run.progress(
            step=position.step, total_steps=position.total_steps, epoch=min(position.epoch, epochs), epochs=epochs
        )

    @staticmethod
    def _is_due(number: int, every: int | None) -> bool:
        return every is not None and number % every == 0


class StopRequested(Exception):
    """Ends an evaluation, on all ranks at the same batch."""


class StopCheck:
    """Reports progress after each batch of an evaluation, and checks for a stop every STOP_CHECK_BATCHES batches.

    All ranks call it equally often. Raises StopRequested.
    """

    def __init__(self, run: Run, world: World, report_progress: Callable[[], None]) -> None:
        self._run, self._world, self._report_progress, self._calls = run, world, report_progress, 0

    def __call__(self) -> None:
        self._report_progress()
        self._calls += 1
        if self._calls % STOP_CHECK_BATCHES == 0 and self._world.any(self._run.stop_requested):
            raise StopRequested
