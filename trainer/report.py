"""Reports a run to users: metrics, messages and its model card."""

from collections.abc import Mapping
from dataclasses import replace
import logging
from typing import Any

from torchyard.contract.errors import NonFiniteLoss
from torchyard.contract.recipes import Recipe
from torchyard.run import Run
from torchyard.run.accelerator import is_accelerator
from trainer.card import Card, peak_memory
from trainer.metrics import StepMetrics
from trainer.pace import Own, Pace
from trainer.score import Score
from trainer.task import Evaluation
from trainer.world import World

logger = logging.getLogger(__name__)


class Report:
    """Every rank computes the same report; only rank 0's is written. `card`: what is known before training."""

    def __init__(self, run: Run, *, card: Card, world: World, score: Score | None, max_nonfinite: int) -> None:
        self.metrics: dict[str, float] = {}
        """The newest training metrics."""
        self.steps = StepMetrics(world, max_nonfinite, score)
        """What the steps since the last log line have measured."""
        self._run, self._card, self._device, self._world = run, card, world.device, world
        self._pace = Pace(world, card=card)
        self._line: tuple[int, float] | None = None
        """The step and the learning rate of a line whose numbers are on their way to the host."""
        self._earlier = 0
        """Samples of those steps that an earlier attempt has trained on."""

    def introduce(self, description: str, *, config: Recipe, base_lr: float, total_steps: int) -> None:
        """Writes what is about to be trained."""
        card, optimizer = self._card, config.optimizer
        lines = [
            f"{description}; {card.parameters:,} parameters; {card.world_size} × {card.device}",
            f"{total_steps} steps with a global batch of {card.global_batch}: {card.world_size} × "
            f"{card.per_device_batch_size} × {card.gradient_accumulation_steps}, in {card.precision}",
        ]
        if optimizer.lr_scaling != "none":
            lines.append(f"learning rate {base_lr:.6g}: {optimizer.lr:g}, scaled ({optimizer.lr_scaling})")
        for line in lines:
            self.message(line)
        self._run.card(self.card.as_dict())

    def message(self, text: str) -> None:
        """Writes a message to the log and to the job's events."""
        logger.info(text)
        self._run.message(text)

    def warn(self, text: str) -> None:
        """Writes a warning to the job's events."""
        self._run.message(text, level="warning")

    def restart_clock(self, *, whole_epoch: bool) -> None:
        """Restarts the clocks: training begins, or continues after an evaluation.

        `whole_epoch`: all of the epoch is about to be trained.
        """
        self._pace.restart(whole_epoch=whole_epoch)

    def log(self, step: int, *, lr: float, rank_wait: float) -> None:
        """Logs the means over the steps since the last line, up to `step`, and what `Pace` measures. A collective.

        `rank_wait`: the seconds in which this rank exchanged gradients or weights; NaN if that is not measured.
        Does not wait for the device: `poll` and `finish` write the line when its numbers are there. Raises
        NonFiniteLoss if too many steps in a row were not finite up to `step`, or, on a device, up to the line before.
        """
        self.finish()
        self.steps.begin(step, own=self._pace.own(rank_wait))
        self._line = step, lr
        if not is_accelerator(self._device):
            self.finish()
        self._raise_failure()

    def poll(self) -> None:
        """Writes the last line if its numbers are there. Does not wait."""
        if self._line is not None and self.steps.arrived:
            self.finish()

    def finish(self) -> None:
        """Waits for the numbers of the last line, and writes it."""
        if self._line is None:
            return
        (step, lr), self._line = self._line, None
        ranks = [Own(*numbers) for numbers in self.steps.end()]
        speed, measured = self._pace.measure(ranks, samples=self.steps.samples - self._earlier)
        self._earlier = 0
        self.metrics = {
            "train/loss": self.steps.mean,
            **self.steps.shares,
            "train/grad_norm": self.steps.mean_norm,
            "train/lr": lr,
            "train/samples_per_second": speed,
        }
        self._run.log({**self.metrics, **measured}, step=step)
        self.steps.reset()

    def raise_if_nonfinite(self, step: int) -> None:
        """Writes the last line, and raises NonFiniteLoss if too many steps up to `step` in a row were not finite.

        A collective.
        """
        self.finish()
        self.steps.sync(step)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self.steps.failure is not None:
            raise NonFiniteLoss(self.steps.failure)

    def log_evaluation(self, evaluation: Evaluation, *, step: int) -> Evaluation:
        """Logs what was measured at `step`, and shows what rank 0 has found. Returns it with the metrics of rank 0.

        A collective.
        """
        evaluation = replace(evaluation, metrics=self._world.numbers_from_rank_0(evaluation.metrics))
        self._run.log(evaluation.metrics, step=step)
        if self._world.rank == 0:
            evaluation.show(self._run, step)
        return evaluation

    def log_epoch(self, measured: Mapping[str, float], *, epoch: int, epochs: int, step: int) -> None:
        """Logs how long the epoch took, and writes a line with the newest metrics to the log.

        `torchyard.cli.follow` knows the line by its beginning.
        """
        self._run.log(self._pace.epoch_metrics(), step=step)
        shown = "  ".join(f"{key} {value:.4g}" for key, value in {**self.metrics, **measured}.items())
        logger.info("epoch %d/%d  step %d  %s", epoch, epochs, step, shown)

    def state_dict(self) -> dict[str, Any]:
        """Returns the newest training metrics, and what was measured since the last log line."""
        return {"metrics": self.metrics, "window": self.steps.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state. Its `metrics` may hold those of an evaluation, too, which are left out."""
        self.metrics = {key: value for key, value in state["metrics"].items() if key.startswith("train/")}
        self.steps.load_state_dict(state["window"])
        self._earlier = self.steps.samples

    @property
    def card(self) -> Card:
        """The model card with speed and memory as measured so far."""
        pace = self._pace
        speed = pace.samples / pace.seconds if pace.seconds else None
        return replace(self._card, samples_per_second=speed, peak_memory_bytes=peak_memory(self._device))
