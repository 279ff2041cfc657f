"""What is advised about an error that the program's code did not cause."""

from typing import Any

import pytest

from api.advice.judgement import judge
from tests.api.advice.facts import TRACEBACK, facts, failed, log
from torchyard.contract.advice import AdviceView


def advised(message: str, *, code: str = "user_error", config: dict[str, Any] | None = None, **more: Any) -> AdviceView:
    error = failed(code, message, rank=0, exit_code=1, traceback=more.pop("traceback", TRACEBACK))
    return judge(facts("failed", trainer="script", failure=error, config=config, **more))


@pytest.mark.parametrize(
    ("message", "step"),
    [
        ("DistNetworkError: The server socket has failed to listen: Address already in use", "Use MASTER_PORT"),
        ("OSError: [Errno 98] error while attempting to bind: EADDRINUSE", "Use MASTER_PORT"),
        (
            "RuntimeError: unable to open shared memory object </torch_1> in read-write mode: No space left on device",
            "(/dev/shm) is full",
        ),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error.", "(/dev/shm) is full"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/torch_9'", "(/dev/shm) is full"),
        ("OSError: [Errno 24] Too many open files: 'a.png'", "ulimit -n"),
        ("OSError: [Errno 28] No space left on device: 'out.pt'", "A disk is full"),
        ("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "-- python train.py"),
        ("RuntimeError: No CUDA GPUs are available", "current_accelerator()"),
        ("URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "cannot reach that address"),
        ("SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "your network's certificates"),
        ("RuntimeError: can't start new thread", "no more processes"),
    ],
)
def test_what_surrounds_the_program_has_advice_of_its_own(message: str, step: str) -> None:
    steps = " ".join(advised(message, config={"entrypoint": "train.py"}).steps)
    assert step in steps
    assert "Correct train.py" not in steps


@pytest.mark.parametrize(
    "message",
    [
        "the packages cannot be installed: Because torchh was not found in the package registry and you require torchh",
        "the packages cannot be installed: No solution found when resolving dependencies",
        "the packages cannot be installed: there are no versions of einops that fit",
    ],
)
def test_a_package_that_no_index_has_is_named_with_its_file(message: str) -> None:
    advice = advised(message, code="launch_failed", config={"requirements": "needs.txt"}, traceback=None)
    assert advice.steps == [
        "Correct the name or the version of that package in needs.txt: the index has none that fits."
    ]


@pytest.mark.parametrize(
    "message",
    [
        "PermissionError: [Errno 13] Permission denied: '/data/x'",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='x', port=80)",
        "OSError: [Errno 5] Input/output error",
    ],
)
def test_an_error_of_the_system_without_advice_stands_alone(message: str) -> None:
    advice = advised(message)
    assert advice.steps == []
    assert message in advice.headline


def test_the_line_of_the_log_says_what_the_end_does_not() -> None:
    lines = log("epoch 1", "OSError: [Errno 24] Too many open files", "    ^^^^^^^^", "-----", rank=0)
    advice = advised("the job's time limit was reached", code="time_limit", traceback=None, lines=lines)
    assert "ulimit -n" in advice.steps[0] and not any("time_limit" in step for step in advice.steps)
    assert advice.evidence[0].text == "OSError: [Errno 24] Too many open files"


def test_a_command_is_not_told_to_be_one() -> None:
    message = "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"
    steps = advised(message, config={"command": "python", "args": ["train.py"]}).steps
    assert not any("torchyard run -- python" in step for step in steps) and "NCCL needs GPUs" in steps[0]


def test_a_limit_of_which_much_is_the_grace_says_so() -> None:
    short = advised("the job's time limit was reached", code="time_limit", spec={"time_limit": "40s"}, traceback=None)
    assert any("The last 20s of it were for the stop" in step for step in short.steps)
    long = advised("the job's time limit was reached", code="time_limit", spec={"time_limit": "1h"}, traceback=None)
    assert not any("for the stop" in step for step in long.steps)
