"""How a job spec names the weights that it starts from.

A checkpoint of a job, one that a job will have for which it waits, or a version of a named model.
"""

from dataclasses import dataclass
import re

from torchyard.contract.models.names import MODEL_REF, ModelRef
from torchyard.contract.wire.wording import allowing

MODEL = "model:"
"""With the name of a model behind it, this names weights in a job spec."""
_LATER_REF = "best|latest|epoch-[0-9]{1,18}|step-[0-9]{1,18}"
_REF = rf"{_LATER_REF}|ckpt_[0-9a-f]{{32}}"
_CHECKPOINT = rf"(job_[0-9a-f]{{32}})/({_REF})"
_BEST_OF_SWEEP = "(swp_[0-9a-f]{32})/(best)"
_OF_AFTER = rf"\$\{{jobs\.([A-Za-z0-9][A-Za-z0-9._-]{{0,99}})\.({_LATER_REF})\}}"
_MODEL = f"{MODEL}{MODEL_REF}"
INIT_FROM = allowing(
    f"^({_CHECKPOINT}|{_BEST_OF_SWEEP}|{_OF_AFTER}|{_MODEL})$",
    "job_…/REF, where REF is best, latest, epoch-N, step-N or ckpt_…, or swp_…/best, or ${jobs.NAME.REF} of a job in "
    "`after`, or model:NAME@VERSION (`torchyard submit` also takes the name of a job or a sweep for its id)",
)


@dataclass(frozen=True)
class CheckpointRef:
    """A checkpoint of a job. `ref`: `best`, `latest`, `epoch-N`, `step-N` or its id.

    With the id of a sweep in place of a job's, `ref` is `best`: that of its best trial.
    """

    job_id: str
    ref: str


@dataclass(frozen=True)
class AfterRef:
    """A checkpoint that a job in `after` has once it has ended. `job`: its name or id as the spec has it."""

    job: str
    ref: str

    def __str__(self) -> str:
        return f"${{jobs.{self.job}.{self.ref}}}"


def is_exact(text: str) -> bool:
    """Returns whether a job spec may have this as its `init_from`."""
    return re.fullmatch(f"{_CHECKPOINT}|{_BEST_OF_SWEEP}|{_OF_AFTER}|{_MODEL}", text) is not None


def parse_initial(text: str) -> CheckpointRef | AfterRef | ModelRef:
    """Returns what an `init_from` names. It must match `INIT_FROM`: raises ValueError."""
    if (found := re.fullmatch(_CHECKPOINT, text) or re.fullmatch(_BEST_OF_SWEEP, text)) is not None:
        return CheckpointRef(found[1], found[2])
    if (found := re.fullmatch(_OF_AFTER, text)) is not None:
        return AfterRef(found[1], found[2])
    if re.fullmatch(_MODEL, text) is not None:
        return ModelRef.parse(text.removeprefix(MODEL))
    raise ValueError(f"{text!r} names neither a checkpoint nor a model")
