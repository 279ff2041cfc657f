"""The record by which a recipe is registered."""

from dataclasses import dataclass

from torchyard.contract.recipes.training import Recipe

DATA_WAIT = "time/data_wait"
"""The share of each step (0…1, the mean over the ranks) in which a rank waits for its data loader. All recipes log it,
but it is no measure of a model: nothing monitors it."""
RANK_WAIT = "wait/mean"
"""The share of each step (0…1, the mean over the ranks) from a rank's own last gradient to the end of the exchange with
the others. Logged by `ddp` and `local_sgd` on several ranks."""
RANK_LAG = "wait/lag"
"""The greatest such share of a rank less the least: how long others wait for the slowest rank."""
SLOWEST_RANK = "wait/slowest_rank"
"""The number of the rank with the least such share: the others wait for it."""
_MEASURED_BY_ALL = frozenset({"train/loss", "train/grad_norm", "train/lr", "train/samples_per_second", "val/loss"})


@dataclass(frozen=True, kw_only=True)
class RecipeEntry:
    """A built-in recipe. Its schema module names it `RECIPE`; `trainer.recipes` has a module of the same name."""

    name: str
    """The value of `trainer` in a job spec, and the default name of a job."""
    config: type[Recipe]
    """The schema of `config` in a job spec; its docstring describes the recipe to users."""
    measures: frozenset[str]
    """The metrics of this recipe beside those that all measure: of the validation split, and its score in training."""

    @property
    def metrics(self) -> frozenset[str]:
        """All metrics of the recipe: those that `checkpoint.monitor` may name."""
        return _MEASURED_BY_ALL | self.measures
