"""What is advised about an attempt that failed."""

from dataclasses import replace
import re
from typing import Any

import pytest

from api.advice.judgement import judge
from tests.api.advice.facts import CUDA_OOM, TRACEBACK, facts, failed, log
from tests.approved import Approved
from torchyard.contract.advice import AdviceView
from torchyard.contract.states import OUTCOMES, EndReason, JobState


def shown(advice: AdviceView) -> list[tuple[str, str]]:
    return [(item.kind, item.text) for item in advice.evidence]


def out_of_memory(message: str = CUDA_OOM, **more: Any) -> AdviceView:
    error = failed("out_of_memory", message, rank=1, exit_code=1)
    return judge(facts("failed", failure=error, lines=log("epoch 3", message, "the end", rank=1), **more))


def test_out_of_memory_names_the_line_the_rank_the_memory_and_a_batch_that_keeps_the_global_one(
    approved: Approved,
) -> None:
    advice = out_of_memory(config={"training": {"per_device_batch_size": 16, "gradient_accumulation_steps": 2}})
    assert (advice.severity, advice.headline) == ("error", approved("headline"))
    assert advice.cause == CUDA_OOM
    log_line, memory, rank = advice.evidence
    assert (log_line.kind, log_line.line, log_line.rank) == ("log", 2, 1)
    assert memory.text == approved("text")
    assert rank.text == approved("rank ended exit")
    assert "\n".join(advice.steps) == approved("steps")


@pytest.mark.parametrize(
    ("training", "distributed"),
    [
        ({"per_device_batch_size": 15}, {}),
        ({"per_device_batch_size": 7}, {}),
        ({"per_device_batch_size": 4, "auto_batch": True}, {}),
        ({"per_device_batch_size": 4}, {"strategy": "fsdp"}),
        ({"per_device_batch_size": 4}, {"static_graph": True}),
        ({"per_device_batch_size": 1}, {}),
    ],
)
def test_the_smaller_batch_is_possible(
    training: dict[str, Any], distributed: dict[str, Any], approved: Approved
) -> None:
    assert out_of_memory(config={"training": training, "distributed": distributed}).steps[0] == approved.of_row("steps")
    if training.get("auto_batch") or distributed.get("strategy") == "fsdp":
        assert "set training.auto_batch" not in " ".join(
            out_of_memory(config={"training": training} | {"distributed": distributed}).steps
        )


def test_a_language_model_needs_less_memory_by_more_than_its_batch(approved: Approved) -> None:
    config = {
        "model": {"weights": "file:///base", "method": "full"},
        "data": {"source": "file:///data"},
        "training": {"per_device_batch_size": 4},
    }
    assert "\n".join(out_of_memory(trainer="causal-lm", config=config).steps) == approved("steps")


def test_memory_in_pieces_is_joined() -> None:
    steps = out_of_memory(CUDA_OOM.replace("512.00 MiB", "5.00 GiB")).steps
    assert "expandable_segments:True" in steps[1]
    assert "expandable_segments" not in " ".join(out_of_memory().steps)


def test_the_hosts_memory_is_no_gpus() -> None:
    advice = out_of_memory("MemoryError: wanted 12.0 GiB, free 3.1 GiB of 7.8 GiB: take smaller batches")
    assert ("memory", "tried to allocate 12.0 GiB; 3.1 GiB of 7.8 GiB of the host was free") in shown(advice)
    assert not any("min_memory_gb" in step for step in advice.steps)


@pytest.mark.parametrize(
    "message", ["MemoryError: take smaller batches", "CUDA out of memory", "1.2.3 GiB", "9" * 99_999]
)
def test_no_memory_is_claimed_that_nobody_reported(message: str) -> None:
    assert "memory" not in {item.kind for item in out_of_memory(message).evidence}


def test_a_size_that_is_no_number_is_no_defect() -> None:
    odd = CUDA_OOM.replace("79.10 GiB", "7.9.10 GiB").replace("512.00 MiB", "5..0 GiB")
    assert out_of_memory(odd).steps[0].startswith("Set training.per_device_batch_size")


def test_an_error_of_a_script_names_the_users_own_line(approved: Approved) -> None:
    error = failed("user_error", "ValueError: the data is blue", rank=0, exit_code=1, traceback=TRACEBACK)
    lines = log("starts", stream="stdout") + log(*TRACEBACK.splitlines(), first=2) + log("bye", first=99)
    advice = judge(facts("failed", trainer="script", failure=error, lines=lines))
    assert advice.headline == approved("headline")
    assert advice.cause == approved("cause")
    raised, frame, rank = advice.evidence
    assert (raised.kind, raised.text, raised.line) == ("log", "ValueError: the data is blue", 9)
    assert (frame.text, frame.line) == (approved("text"), 5)
    assert rank.kind == "rank"
    assert advice.steps == [approved("steps")]


@pytest.mark.parametrize(
    ("message", "left_out"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/words/train.bin'", ["data/words/train.bin"]),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/runs/job_1/1/job/code/data/x.npz'", ["data/"]),
        ("RuntimeError: Dataset not found at ./raw: use download=True", ["cache", "raw/"]),
        ("cat: words.txt: No such file or directory", ["words.txt", "notes.txt"]),
        ("FileNotFoundError: 'data/char/train.bin'", ["data/char/train.bin", "data/char/val.bin", "data/x.bin"]),
    ],
)
def test_a_file_that_was_left_out_of_the_upload_is_named_with_the_option(
    message: str, left_out: list[str], approved: Approved
) -> None:
    error = failed("user_error", message, rank=0, exit_code=1, traceback=f"{TRACEBACK}{message}\n")
    advice = judge(facts("failed", trainer="script", failure=error, config={"left_out": left_out}))
    assert "\n".join(advice.steps) == approved.of_row("steps")


@pytest.mark.parametrize(
    ("message", "left_out"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/words/train.bin'", []),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'more.data/x'", ["data/"]),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'train.bin.gz'", ["train.bin"]),
        ("ValueError: data/ has 3 classes", ["data/"]),
    ],
)
def test_another_file_or_error_is_none_of_what_was_left_out(message: str, left_out: list[str]) -> None:
    error = failed("user_error", message, rank=0, exit_code=1, traceback=TRACEBACK)
    advice = judge(facts("failed", trainer="script", failure=error, config={"left_out": left_out}))
    assert advice.steps == ["Correct train.py, line 7, in load, then submit it again."]


def test_no_line_of_code_is_claimed_of_a_traceback_in_other_peoples_code(approved: Approved) -> None:
    theirs = (
        'Traceback:\n  File "/usr/lib/python3.12/json/decoder.py", line 5, in decode\n    pass\nJSONDecodeError: no\n'
    )
    error = failed("user_error", "JSONDecodeError: no", rank=2, traceback=theirs)
    advice = judge(facts("failed", trainer="script", failure=error))
    assert (advice.headline, advice.cause, advice.evidence) == (approved("headline"), None, [])
    assert advice.steps == [approved("steps")]


def test_a_loss_that_is_not_finite_has_the_settings_that_are_not_made(approved: Approved) -> None:
    error = failed("user_error", "NonFiniteLoss: the loss was nan at step 7: not finite for 3 steps in a row", rank=0)
    config = {"optimizer": {"lr": 0.02, "clip_grad_norm": 1.0}, "lr_scheduler": {"warmup_steps": 0}}
    steps = judge(facts("failed", failure=error, config=config)).steps
    assert steps[0] == approved("steps")
    assert not any("clip_grad_norm" in step for step in steps)
    assert any("warmup_steps" in step for step in steps)


@pytest.mark.parametrize(
    ("code", "more", "step"),
    [
        ("hang", {"traceback": "rank 0:"}, "set stall_timeout to 20m."),
        ("hang", {"rank": 1, "exit_code": -6}, "Read the end of the log of rank 1."),
        ("killed", {"rank": 1, "exit_code": -9}, "Set data.workers to 4: fewer"),
        ("killed", {"rank": 1, "exit_code": -11}, "native code"),
        ("data_error", {"message": "no masks"}, "It is file:///data."),
        ("config_error", {}, "Correct the configuration"),
        ("launch_failed", {}, "launcher's lines"),
        ("time_limit", {}, "time_limit 110h: 24% was done within 1d."),
        ("idle_timeout", {}, "Read in the log what it waited for"),
        ("worker_lost", {}, "Check the host of worker box-a."),
        ("device_fault", {}, "H100 0 of box-a"),
    ],
)  # fmt: skip
def test_each_end_has_its_next_step(code: str, more: dict[str, Any], step: str, approved: Approved) -> None:
    error = failed(code, **more)
    advice = judge(facts("failed", failure=error, config={"data": {"workers": 8}}, gpus=[{}]))
    assert advice.headline == approved.of_row("headline")
    assert any(step in item for item in advice.steps), advice.steps


@pytest.mark.parametrize(
    "message",
    [
        "there is no /models/a b",
        "model.weights: /models/a b cannot be used: it has no tokenizer.json",
        "init_from: the adapter was trained on a, and b is another base",
        "init_from: the data does not fit the checkpoint's model",
        "there is no /models/a b/words.jsonl",
    ],
)
def test_a_base_that_cannot_be_used_is_named_as_what_is_to_be_corrected(message: str, approved: Approved) -> None:
    config = {"model": {"weights": "file:///models/a%20b"}, "data": {"source": "file:///models/a%20b/words.jsonl"}}
    advice = judge(facts("failed", trainer="causal-lm", failure=failed("data_error", message), config=config))
    assert advice.steps[0] == approved.of_row("steps")


def test_an_idle_job_may_ask_for_longer_pauses(approved: Approved) -> None:
    error = failed("idle_timeout", "all 2 GPUs were used below 5% for 30m (idle_timeout)")
    advice = judge(facts("failed", trainer="script", failure=error, spec={"idle_timeout": "30m"}))
    assert advice.cause == error.message
    assert advice.steps[1] == approved("steps")


@pytest.mark.parametrize("code", [*OUTCOMES])
def test_every_end_can_be_judged_from_nothing_else(code: EndReason) -> None:
    advice = judge(facts("failed", trainer="script", failure=failed(code)))
    assert advice.headline.startswith(("failed: ", "skipped: "))
    assert advice.evidence == []
    assert all(advice.steps)


def test_a_hang_is_not_shown_by_the_last_line_of_its_stacks() -> None:
    stacks = log("Thread 0x1 (most recent call first):", '  File "train.py", line 3 in load')
    assert judge(facts("failed", failure=failed("hang", "no progress for 10m"), lines=stacks)).evidence == []


def test_a_rank_that_was_killed_is_shown_by_what_it_wrote_last(approved: Approved) -> None:
    lines = log("loading", stream="stdout") + log("epoch 3", "", stream="stdout", first=2)
    advice = judge(facts("failed", failure=failed("killed", rank=0, exit_code=-9), lines=lines))
    assert shown(advice) == [("log", "epoch 3"), ("rank", approved("shown"))]


def test_a_retry_says_where_it_begins(approved: Approved) -> None:
    assert judge(facts("failed", failure=failed("killed"), checkpoint_step=1710)).steps[-1] == approved("steps")


def test_a_job_that_waits_for_its_next_attempt_has_the_cause_of_the_last_one(approved: Approved) -> None:
    message = "attempt 1 ended: CUDA out of memory"
    more: dict[str, Any] = {"failure": failed("out_of_memory", CUDA_OOM, rank=1), "reason": ("retrying", message)}
    advice = judge(facts(JobState.QUEUED, **more))
    assert (advice.severity, advice.headline) == ("warning", approved("headline"))
    assert advice.steps[0].startswith("Set training.per_device_batch_size")
    assert advice.steps[-1] == approved("steps")


@pytest.mark.parametrize(("auto_batch", "state"), [(True, "queued"), (True, "failed"), (False, "queued")])
def test_a_job_that_halves_its_micro_batches_by_itself_says_so_before_it_does(auto_batch: bool, state: str) -> None:
    config = {"training": {"auto_batch": auto_batch}}
    error, reason = failed("out_of_memory", CUDA_OOM, rank=1), ("retrying", "attempt 1 ended: CUDA out of memory")
    steps = judge(facts(state, config=config, failure=error, reason=reason)).steps
    said = "Wait for the next attempt: training.auto_batch halves the micro-batch."
    assert (steps[0] == said) == (auto_batch and state == "queued")


def test_texts_of_a_job_are_bounded_and_control_nothing() -> None:
    hostile = "\x1b]0;title\x07\x9b2J\x1b[31mred\x1b[0m\u202e\nsecond" + "x" * 100_000
    frame = f'  File "/code/\x1b[2J{"y" * 900}.py", line 7, in \x1b]0;a\x07load\n    \x1b[31mpass\nError: {hostile}'
    error = failed("user_error", hostile, rank=0, exit_code=1, traceback=frame)
    advice = judge(facts("failed", trainer="script", failure=error, lines=log(hostile, frame), reason=("x", hostile)))
    texts = [advice.headline, advice.cause or "", *advice.steps, *(item.text for item in advice.evidence)]
    assert len(advice.evidence) == 3
    for text in texts:
        assert len(text) <= 1000
        assert text.isprintable(), text


def test_a_wrong_argument_is_what_the_program_said_and_no_line_of_code(approved: Approved) -> None:
    said = "train.py: error: unrecognized arguments: --lrr 0.1"
    lines = log("usage: train.py [-h] [--lr LR]", said)
    failure = failed("user_error", f"rank 0: {said}", rank=0, exit_code=2)
    advice = judge(facts("failed", trainer="script", failure=failure, lines=lines))
    assert (advice.headline, advice.cause) == (f"failed on rank 0: {said}", None)
    assert shown(advice)[0] == ("log", said)
    assert advice.steps == [approved("steps")]


@pytest.mark.parametrize(
    ("requirements", "has"),
    [
        (None, True),
        (None, False),
        ("base.txt", False),
    ],
)
def test_a_missing_module_names_where_its_package_is_named(
    requirements: str | None, has: bool, approved: Approved
) -> None:
    failure = failed("user_error", "ModuleNotFoundError: No module named 'einops'", rank=0, traceback=TRACEBACK)
    config = {"requirements": requirements} if requirements else {}
    found = facts("failed", trainer="script", failure=failure, config=config)
    advice = judge(replace(found, has_requirements=has))
    assert advice.headline == approved("headline")
    assert advice.steps[0] == approved.of_row("steps")


@pytest.mark.parametrize(
    ("message", "logged", "config", "steps"),
    [
        (
            "the command exited with code 1: ModuleNotFoundError: No module named 'einops'",
            "",
            {},
            ["Write its package"],
        ),
        ("the command exited with code 1: python: No module named einops", "", {}, ["Write its package"]),
        ("the command exited with code 1", "ModuleNotFoundError: No module named 'einops'", {}, ["Write its package"]),
        ("rank 0: No module named einopsx", "", {"module": "einopsx"}, ["Check the name einopsx", "Write its package"]),
        ("rank 0: No module named a.__main__; 'a' is a package", "", {"module": "a"}, ["Read the end of the log"]),
        ("the command exited with code 1", "step 3", {}, ["Read the end of the log"]),
    ],
)
def test_a_missing_module_is_known_however_the_program_is_started(
    message: str, logged: str, config: dict[str, Any], steps: list[str]
) -> None:
    failure = failed("user_error", message, rank=0, exit_code=1)
    config = config or {"command": "python", "args": ["miss.py"]}
    advice = judge(facts("failed", trainer="script", failure=failure, config=config, lines=log(logged or "x", rank=0)))
    assert [step[: len(start)] for step, start in zip(advice.steps, steps, strict=True)] == steps


def test_the_line_that_a_rank_of_torch_raised_is_the_decisive_one() -> None:
    failure = failed("user_error", "ValueError: x", rank=0, exit_code=1, traceback="Traceback\nValueError: x")
    advice = judge(facts("failed", trainer="script", failure=failure, lines=log("[rank0]: ValueError: x", "====")))
    assert shown(advice)[0] == ("log", "[rank0]: ValueError: x")


def test_a_failed_installation_is_shown_by_the_line_that_says_why_and_not_by_a_hint() -> None:
    why = "error in gym setup command: 'extras_require' must be a dictionary"
    failure = failed(
        "launch_failed", f"the packages cannot be installed: {why}\n  [stderr]\n  {why}\n  hint: x", rank=0
    )
    lines = log(
        "  × Failed to build `gym==0.19.0`", f"      {why}", "      hint: Build failures usually indicate a problem"
    )
    assert shown(judge(facts("failed", trainer="script", failure=failure, lines=lines)))[0] == ("log", why)


def test_the_folder_of_an_environment_does_not_fill_the_line() -> None:
    folder = f"/data/environments/{'a' * 64}/lib/python3.11/site-packages"
    failure = failed("user_error", "exited with code 1", rank=0, exit_code=1)
    lines = log(f"{folder}/trl/x.py:9: UserWarning: no", rank=0)
    advice = judge(facts("failed", trainer="script", failure=failure, lines=lines))
    assert shown(advice)[0] == ("log", "…/site-packages/trl/x.py:9: UserWarning: no")


def test_the_cause_of_a_quoted_traceback_is_its_last_line(approved: Approved) -> None:
    message = "KeyError: Caught it in worker 0.\nOriginal Traceback (most recent call last):\n  x\nKeyError: 'mask'"
    assert judge(facts("failed", failure=failed("user_error", message, rank=1))).headline == approved("headline")


@pytest.mark.parametrize("trainer", ["script", "segmentation"])
@pytest.mark.parametrize("code", [*EndReason])
def test_each_step_is_true_of_the_job(code: EndReason, trainer: str) -> None:
    """Each setting that a step names is one of the job, and no step asks for more than a job may have."""
    most: dict[str, Any] = dict.fromkeys(("stall_timeout", "time_limit", "idle_timeout"), "3650d")
    ends: list[dict[str, Any]] = [
        {},
        {"rank": 0, "exit_code": 1},
        {"rank": 0, "exit_code": -9},
        {"traceback": TRACEBACK},
    ]
    for more in ends:
        for spec in ({}, most):
            found = facts("failed", trainer=trainer, failure=failed(code, **more), spec=spec)
            said = " ".join(judge(found).steps)
            assert "checkpoint" not in said, "there is none"
            assert trainer != "script" or not re.search(r"data\.source|training\.|optimizer\.", said), said
            assert spec == {} or not re.search("set (stall_timeout|time_limit|idle_timeout)|time_limit above", said), (
                said
            )
            assert "stacks" not in said or "traceback" in more


def test_a_job_that_another_has_failed_names_that_one(approved: Approved) -> None:
    after: list[dict[str, Any]] = [
        {"job_id": "job_1", "name": "good", "on": "succeeded", "state": "succeeded"},
        {"job_id": "job_2", "name": "prep", "on": "succeeded", "state": "failed"},
    ]
    message = "prep failed; this job needs it to succeed"
    advice = judge(facts("failed", failure=failed("dependency_failed", message), after=after, attempt=0))
    assert (advice.headline, advice.severity) == (f"skipped: {message}", "error")
    assert "\n".join(advice.steps) == approved("steps")


def test_a_job_that_was_not_needed_is_no_failure() -> None:
    after: list[dict[str, Any]] = [{"job_id": "job_1", "name": "prep", "on": "failed", "state": "succeeded"}]
    message = "not needed: prep succeeded"
    advice = judge(facts("failed", failure=failed("dependency_failed", message), after=after, attempt=0))
    assert (advice.headline, advice.severity, advice.steps) == (message, "info", [])


def test_a_script_without_a_checkpoint_finds_its_working_folder(approved: Approved) -> None:
    error = failed("user_error", "rank 0: ValueError: x", rank=0, exit_code=1)
    asked: dict[str, Any] = {"trainer": "script", "failure": error, "reason": ("retrying", "attempt 1 ended: x")}
    waits = judge(facts("queued", **asked))
    assert waits.steps[-1] == approved("bundle")
    in_place = judge(facts("queued", **asked, config={"code": "file:///srv/code"}))
    assert in_place.steps[-1] == approved("in place")
