"""The one judgement of a job: what is the matter, what shows it, and what to do. A pure function of facts."""

from api.advice import failure, printed, ranks, running, waiting
from api.advice.facts import Facts, evidence, shown
from torchyard.contract.advice import AdviceView
from torchyard.contract.states import JobState


def judge(facts: Facts) -> AdviceView:
    """Returns the advice about a job in any state."""
    advice = _judged(facts)
    if facts.job.state is JobState.RUNNING and facts.silence is not None:
        advice = advice.model_copy(update={"silent_s": int(facts.silence.total_seconds())})
    offered = printed.curves(facts)
    if offered is None:
        return advice
    return advice.model_copy(update={"steps": [*advice.steps, offered.step], "metric_pattern": offered.pattern})


def _judged(facts: Facts) -> AdviceView:
    match facts.job.state:
        case JobState.QUEUED:
            return waiting.judge(facts)
        case JobState.STARTING | JobState.RUNNING:
            return running.judge(facts)
        case JobState.FAILED:
            return failure.judge(facts)
        case JobState.PAUSED:
            return _paused(facts)
        case JobState.SUCCEEDED:
            return _succeeded(facts)
        case JobState.CANCELLED:
            return _cancelled(facts)


def _paused(facts: Facts) -> AdviceView:
    return AdviceView(
        headline=f"paused: {shown(facts.job.status_reason.message)}",
        steps=[f"Resume it: it {failure.continues(facts)}. It holds no devices until then."],
    )


def _succeeded(facts: Facts) -> AdviceView:
    best, longer = facts.job.best, ranks.more_epochs(facts)
    steps = [longer] if longer else []
    if best is None:
        return AdviceView(headline="succeeded", steps=steps)
    metric, where = shown(best.metric), "" if best.epoch is None else f" in epoch {best.epoch}"
    reached = f"{metric} {best.value:.6g} at step {best.step}{where}"
    return AdviceView(
        headline=f"succeeded: the best {metric} is {best.value:.6g}",
        evidence=[evidence("metric", reached)],
        steps=[f"Download the checkpoint with that value: `best`, {best.checkpoint_id}.", *steps],
    )


def _cancelled(facts: Facts) -> AdviceView:
    return AdviceView(
        headline=f"cancelled: {shown(facts.job.status_reason.message)}",
        steps=[f"Retry it if it was cancelled by mistake: the new job {failure.continues(facts)}."],
    )
