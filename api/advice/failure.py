"""Advice about an attempt that failed: its cause, the evidence, and the next step."""

from collections.abc import Callable
from datetime import timedelta
import math
import signal
from urllib.parse import unquote

from api.advice import memory, missing, output, surroundings
from api.advice.facts import REQUIREMENTS, Facts, evidence, shown
from torchyard.contract.advice import AdviceView, EvidenceView
from torchyard.contract.attempts import last_error
from torchyard.contract.bundles.names import BUNDLE_URL
from torchyard.contract.jobs.views import ErrorView
from torchyard.contract.recipes.script import Script
from torchyard.contract.spec.after import is_failed
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.wire.text import headline
from torchyard.contract.wire.units import LONGEST, format_duration

_SAID_BY_MESSAGE = {EndReason.USER_ERROR, EndReason.DATA_ERROR, EndReason.CONFIG_ERROR, EndReason.LAUNCH_FAILED}
"""End reasons whose own message is the best headline."""
_NONFINITE = "NonFiniteLoss"
_HALVED = "Wait for the next attempt: training.auto_batch halves the micro-batch."
_HOUR = timedelta(hours=1)


def judge(facts: Facts) -> AdviceView:
    """Returns the advice about a job that failed, or that waits for its next attempt after a failure."""
    failure, job = facts.failure, facts.job
    if failure is None:
        return AdviceView(headline=f"{job.state}: {shown(job.status_reason.message)}", severity="error")
    if failure.code == EndReason.DEPENDENCY_FAILED:
        return _skipped(facts, shown(_message(failure) or job.status_reason.message))
    waits = job.state == JobState.QUEUED
    failed = f"attempt {job.attempt} failed" if waits else "failed"
    own = surroundings.steps(facts) or _STEPS.get(failure.code, _read_the_log)(facts, failure)
    proposed = [step for step in own if step]
    again = f"The next attempt {continues(facts)}." if waits else f"A retry {continues(facts)}."
    return AdviceView(
        headline=f"{failed}{_what(failure)}",
        cause=_cause(facts, failure),
        evidence=_evidence(facts, failure),
        steps=[*proposed, again] if facts.checkpoint_step is not None or waits else proposed,
        severity="warning" if waits else "error",
    )


def _skipped(facts: Facts, message: str) -> AdviceView:
    """Returns the advice for a job that was skipped because another job did not end as required."""
    unmet = [each for each in facts.job.after if each.state is not None and is_failed(each.on, each.state)]
    if unmet and all(each.on == JobState.FAILED for each in unmet):
        return AdviceView(headline=message, severity="info")
    look = [f"See why {shown(unmet[0].name or unmet[0].job_id)} ended, then submit it again."] if unmet else []
    steps = [*look, "A retry of this job does not wait for jobs that have ended."]
    return AdviceView(headline=f"skipped: {message}", steps=steps, severity="error")


def continues(facts: Facts) -> str:
    """Says where the next attempt begins."""
    if facts.checkpoint_step is not None:
        return f"continues from the newest checkpoint (step {facts.checkpoint_step})"
    if facts.script is not None and facts.script.code.startswith(BUNDLE_URL):
        return "continues in the working folder: it has no checkpoint"
    return "starts from the beginning: it has no checkpoint"


def _what(failure: ErrorView) -> str:
    """Says what has happened and on which rank: in a few words, or by the message of an error that says it better."""
    where = "" if failure.rank is None else f" on rank {failure.rank}"
    if failure.code in _SAID_BY_MESSAGE and (message := _message(failure)):
        return f"{where}: {message}"
    words = {
        EndReason.USER_ERROR: "an error of the program",
        EndReason.OUT_OF_MEMORY: "out of memory",
        EndReason.HANG: "no progress",
        EndReason.KILLED: f"killed{_by_signal(failure)}",
        EndReason.DATA_ERROR: "the data cannot be used",
        EndReason.CONFIG_ERROR: "the configuration cannot be used",
        EndReason.LAUNCH_FAILED: "its processes did not start",
        EndReason.TIME_LIMIT: "the time limit was reached",
        EndReason.IDLE_TIMEOUT: "it did not use its GPUs",
        EndReason.WORKER_LOST: "its worker was lost",
        EndReason.DEVICE_FAULT: "a device fault",
    }
    return f": {words.get(failure.code, failure.code.replace('_', ' '))}{where}"


def _message(failure: ErrorView) -> str:
    """Returns the line of the message that says most, without the rank that is named beside it."""
    return shown(headline(failure.message).removeprefix(f"rank {failure.rank}: "))


def _cause(facts: Facts, failure: ErrorView) -> str | None:
    """Says what the headline does not: the message, and the user's line of code."""
    frame = _frame(facts, failure)
    if failure.code in _SAID_BY_MESSAGE and _message(failure):
        return None if frame is None else f"Raised in {shown(str(frame))}."
    message = _message(failure) or None
    return message if frame is None or message is None else shown(f"{message} ({frame})")


def _frame(facts: Facts, failure: ErrorView) -> output.Frame | None:
    return None if facts.recipe else output.last_frame(failure.traceback)


def _evidence(facts: Facts, failure: ErrorView) -> list[EvidenceView]:
    items: list[EvidenceView] = []
    if (line := output.decisive_line(failure, facts.lines)) is not None:
        items.append(evidence("log", line.text, line=line.line, rank=line.rank))
    frame = _frame(facts, failure)
    if frame is not None:
        text = f"{frame}: {frame.code}" if frame.code else str(frame)
        items.append(evidence("log", text, line=output.line_of(frame, facts.lines), rank=failure.rank))
    if failure.code is EndReason.OUT_OF_MEMORY and (memory_then := str(memory.shortage(failure.message))):
        items.append(evidence("memory", memory_then, rank=failure.rank))
    if failure.exit_code is not None:
        who = "the launcher" if failure.rank is None else f"rank {failure.rank}"
        how = _by_signal(failure)
        items.append(
            evidence(
                "rank",
                f"{who} was killed{how}" if how else f"{who} ended with exit code {failure.exit_code}",
                rank=failure.rank,
            )
        )
    return items


def _by_signal(failure: ErrorView) -> str:
    if failure.exit_code is None or failure.exit_code >= 0:
        return ""
    try:
        return f" by {signal.Signals(-failure.exit_code).name}"
    except ValueError:
        return f" by signal {-failure.exit_code}"


def _for_user_error(facts: Facts, failure: ErrorView) -> list[str]:
    if failure.message.startswith(_NONFINITE):
        return steps_for_nonfinite(facts)
    if facts.script is not None and (steps := _for_start(facts, facts.script, failure)):
        return steps
    if (path := missing.left_out(facts)) is not None:
        return missing.steps(path)
    if facts.script is not None and surroundings.is_by_others(failure.message):
        return []
    frame = _frame(facts, failure)
    return _read_the_log(facts, failure) if frame is None else [f"Correct {shown(str(frame))}, then submit it again."]


def _for_start(facts: Facts, script: Script, failure: ErrorView) -> list[str]:
    """Says what to do where the program could not begin. Empty: it began."""
    if last_error.wrong_argument(failure.message, exit_code=failure.exit_code):
        return ["Correct the arguments of the program (config.args), then submit it again."]
    return _for_missing_module(facts, script, failure) if facts.misses_module else []


def _for_missing_module(facts: Facts, script: Script, failure: ErrorView) -> list[str]:
    """Says where a package that the program needs is named. The program itself may be what is missing."""
    if facts.missing_module is not None and facts.module_folder is not None:
        return missing.steps_for_folder(facts.missing_module, facts.module_folder, facts)
    own: list[str] = []
    if script.module is not None and f"No module named {script.module.partition('.')[0]}" in failure.message:
        own = [f"Check the name {shown(script.module)} (config.module): the code folder has no such module."]
    if script.requirements is not None:
        return [*own, f"Add its package to {shown(script.requirements)} (config.requirements), then submit it again."]
    named = f"`torchyard run --requirements {REQUIREMENTS} PROGRAM`, or config.requirements"
    if facts.has_requirements:
        return [
            *own,
            f"The code has a {REQUIREMENTS} that this job does not use: name it ({named}) and submit it again.",
        ]
    return [*own, f"Write its package into a {REQUIREMENTS} beside the code, and name that file ({named})."]


def steps_for_nonfinite(facts: Facts) -> list[str]:
    """Returns what may keep the loss finite: the settings of a recipe that are not made yet."""
    if facts.recipe is None:
        return ["Lower the learning rate or clip the gradients, unless the data itself holds NaN."]
    optimizer, schedule = facts.recipe.optimizer, facts.recipe.lr_scheduler
    return [
        f"Set optimizer.lr to {optimizer.lr / 10:g}: it is {optimizer.lr:g}.",
        "" if optimizer.clip_grad_norm else "Set optimizer.clip_grad_norm to 1.0.",
        "" if schedule.warmup_steps or schedule.warmup_epochs else "Set lr_scheduler.warmup_steps, such as to 100.",
        "Check that the data itself holds no NaN.",
    ]


def _for_out_of_memory(facts: Facts, failure: ErrorView) -> list[str]:
    steps = memory.steps(memory.shortage(failure.message), facts.recipe, facts.job.spec.resources)
    halves = facts.recipe is not None and facts.recipe.training.auto_batch and not facts.job.state.terminal
    return [_HALVED, *steps] if halves else steps


def _for_hang(facts: Facts, failure: ErrorView) -> list[str]:
    if failure.traceback is None:  # a collective's own timeout, which shows no stacks
        return _read_the_log(facts, failure)
    return [
        "Read the stacks of each rank: they show where it stopped.",
        *longer_stall(facts.job.spec.stall_timeout),
    ]


def longer_stall(limit: timedelta) -> list[str]:
    """Proposes twice the time without progress, if there can be more."""
    longer = min(2 * limit, LONGEST)
    return [f"If a step may take this long, set stall_timeout to {format_duration(longer)}."] if longer > limit else []


def _for_killed(facts: Facts, failure: ErrorView) -> list[str]:
    if failure.exit_code is None or failure.exit_code >= 0:
        return _read_the_log(facts, failure)
    if failure.exit_code != -signal.SIGKILL:
        return ["Read the end of the log: native code writes why it aborted."]
    loaders = 0 if facts.loaders is None or facts.loaders.workers == "auto" else facts.loaders.workers
    return [
        "Check whether the host ran out of memory: its kernel log names killed processes.",
        f"Set data.workers to {loaders // 2}: fewer loader processes take less memory." if loaders > 1 else "",
    ]


def _for_data_error(facts: Facts, failure: ErrorView) -> list[str]:
    if facts.recipe is None:
        return ["Correct config.code, config.mounts or what is there, then submit it again."]
    key, url = "config.data.source", facts.recipe.data.source
    weights = facts.recipe.model.weights
    is_named = weights.startswith("file://") and f" {unquote(weights[7:])} " in f" {failure.message} "
    if is_named or failure.message.startswith(("model.weights", "init_from: the adapter")):
        key, url = "config.model.weights", weights
    return [f"Correct {key} or what is there, then submit it again. It is {shown(url)}."]


def _for_config_error(_: Facts, __: ErrorView) -> list[str]:
    return ["Correct the configuration, and submit it again: a retry would end in the same way."]


def _for_launch_failed(_: Facts, __: ErrorView) -> list[str]:
    return ["Read the launcher's lines in the log."]


def _for_time_limit(facts: Facts, _: ErrorView) -> list[str]:
    limit, fraction = facts.job.spec.time_limit, facts.job.progress.fraction
    grace = _grace_within(facts, limit)
    if limit >= LONGEST:
        return ["Request less: this is the longest limit allowed."]
    if not fraction:
        return [f"Submit it again with a time_limit above {format_duration(limit)}.", grace]
    hours = math.ceil(limit / fraction * 1.1 / _HOUR)
    needed = format_duration(min(hours * _HOUR, LONGEST))
    return [
        f"Submit it again with time_limit {needed}: {fraction:.0%} was done within {format_duration(limit)}.",
        grace,
    ]


def _grace_within(facts: Facts, limit: timedelta) -> str:
    """Says how much of the limit is for the stop, where that is a large part of it."""
    grace = min(facts.job.spec.stop_grace, limit / 2)
    if grace * 10 < limit:
        return ""
    own = format_duration(facts.job.spec.stop_grace)
    return (
        f"The last {format_duration(grace)} of it were for the stop: stop_grace, {own}, is part of the limit, up to"
        " half of it. Set a shorter stop_grace, if it needs less to save."
    )


def _for_idle_timeout(facts: Facts, _: ErrorView) -> list[str]:
    timeout = facts.job.spec.idle_timeout
    longer = min(2 * timeout, LONGEST) if timeout is not None else None
    return [
        "Read in the log what it waited for; do that beforehand, or in a job on CPU slots.",
        ""
        if timeout is None or longer is None or longer <= timeout
        else f"If it needs such pauses, set idle_timeout to {format_duration(longer)}, if the service allows that.",
    ]


def _for_worker_lost(facts: Facts, _: ErrorView) -> list[str]:
    names = sorted({device.worker for device in facts.job.devices})
    return [f"Check the host of worker {', '.join(map(shown, names))}." if names else "Check that host."]


def _for_device_fault(facts: Facts, _: ErrorView) -> list[str]:
    held = ", ".join(f"{shown(device.name)} {device.index} of {shown(device.worker)}" for device in facts.job.devices)
    return [f"Ask the host's operator to check its device{f': {held}' if held else ''}."]


def _read_the_log(_: Facts, failure: ErrorView) -> list[str]:
    return [f"Read the end of the log{'' if failure.rank is None else f' of rank {failure.rank}'}."]


_STEPS: dict[EndReason, Callable[[Facts, ErrorView], list[str]]] = {
    EndReason.USER_ERROR: _for_user_error,
    EndReason.OUT_OF_MEMORY: _for_out_of_memory,
    EndReason.HANG: _for_hang,
    EndReason.KILLED: _for_killed,
    EndReason.DATA_ERROR: _for_data_error,
    EndReason.CONFIG_ERROR: _for_config_error,
    EndReason.LAUNCH_FAILED: _for_launch_failed,
    EndReason.TIME_LIMIT: _for_time_limit,
    EndReason.IDLE_TIMEOUT: _for_idle_timeout,
    EndReason.WORKER_LOST: _for_worker_lost,
    EndReason.DEVICE_FAULT: _for_device_fault,
}
"""What to do after each kind of end."""
