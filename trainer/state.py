"""The state of a run as named parts: what a checkpoint's `state.pt` holds, and how a run resumes from it."""

from collections.abc import Mapping
from dataclasses import dataclass
import logging
from typing import Any

from trainer.best import Best
from trainer.learner import Learner
from trainer.position import Position
from trainer.randomness import derived_seed, random_state, seed_everything, set_random_state
from trainer.report import Report
from trainer.schedule import Schedule
from trainer.stopping import EarlyStopping
from trainer.world import World

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The parts of a run that an exact resume restores. Each part knows its own state."""

    learner: Learner
    position: Position
    schedule: Schedule
    stopping: EarlyStopping | None
    best: Best
    report: Report
    world: World
    seed: int
    """The seed of the run, from which the ranks draw new random numbers if their number changes."""

    def state_dict(self, *, at_stop: bool) -> dict[str, Any]:
        """Returns the state of all parts by the keys of `state.pt`. A collective, which synchronizes the ranks.

        `at_stop`: what differs between the ranks is taken before they are synchronized. The next attempt then
        continues as if there had been no stop.
        """
        return {
            **self.learner.state_dict(before_sync=at_stop),
            **self.position.state_dict(),
            **self.report.state_dict(),
            "schedule": self.schedule.state_dict(),
            "early_stopping": self.stopping.state_dict() if self.stopping else None,
            "best": self.best.state_dict(),
            "random": self.world.gather(random_state()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores all parts, on as many ranks as there were or on another number of them."""
        self.learner.load_state_dict(state)
        self.position.load_state_dict(state)
        self.report.load_state_dict(state)
        self.schedule.total_steps = self.position.total_steps
        self.schedule.load_state_dict(state["schedule"])
        if self.stopping is not None and state["early_stopping"] is not None:
            self.stopping.load_state_dict(state["early_stopping"])
        self.best.load_state_dict(state["best"])
        logger.info("resumed at step %d, epoch %d", self.position.step, self.position.epoch)
        self._load_random_state(state)  # last, as nothing may draw random numbers after it

    def _load_random_state(self, state: Mapping[str, Any]) -> None:
        before, world, step = state["sampler"]["world_size"], self.world, self.position.step
        if before == world.size:
            set_random_state(state["random"][world.rank])
            return
        seed_everything(derived_seed(self.seed, world.rank, step))
        self.report.warn(
            f"resumed at step {step} with {world.size} processes instead of {before}: the global batch stays "
            f"{state['sampler']['global_batch']}, no sample of the epoch is repeated or left out, but dropout draws "
            "new random numbers"
        )
