"""What is taken from the stderr of a program as the error that ended it."""

import pytest

from torchyard.contract.attempts.last_error import Said, ended_by, said
from torchyard.contract.wire.text import headline

FRAME = '  File "/code/train.py", line 3, in <module>\n    import einops'
MISSING = "ModuleNotFoundError: No module named 'einops'"
TRACE = f"Traceback (most recent call last):\n{FRAME}\n{MISSING}"
LAUNCHER = (
    'Traceback (most recent call last):\n  File "/env/bin/torchrun", line 8, in <module>\n'
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n====="
)


@pytest.mark.parametrize(
    "text",
    [
        TRACE,
        f"step 1\n{TRACE}\nwandb: done\n\n",
        f"Traceback (most recent call last):\n  x\nKeyError: 1\n\nDuring handling of it:\n\n{TRACE}",
        f"{TRACE}\nException ignored in: <function f>\nTraceback (most recent call last):\n  x\nTypeError: 'NoneType'",
        "\n".join(f"[rank0]: {line}" for line in TRACE.splitlines()) + f"\n{LAUNCHER}\n",
        TRACE.replace(FRAME, f'{FRAME}\n  File "/ours/run/eventlog.py", line 9, in log\n    raise\n    ^^^^^'),
    ],
)
def test_the_last_traceback_that_ended_the_program_is_found(text: str) -> None:
    assert said(text, without="/ours/") == Said(MISSING, TRACE)


@pytest.mark.parametrize(
    ("last", "line"),
    [
        ("bash: line 1: train: command not found", "bash: line 1: train: command not found"),
        ("/opt/env/bin/python: No module named einops", "python: No module named einops"),
        ("SyntaxError: invalid syntax", "SyntaxError: invalid syntax"),
        ("Error: no data", "Error: no data"),
        ("WARNING: slow", None),
        ("INFO: done", None),
        ("12:00:01 step: 3", None),
        ("all is well", None),
    ],
)
def test_without_a_traceback_the_last_line_counts_if_it_is_an_error(last: str, line: str | None) -> None:
    assert said(f"Error: an old one\n{last}\n", without="/ours/") == (None if line is None else Said(line))


@pytest.mark.parametrize("text", ["Traceback (most recent call last):", "Traceback (most recent call last):\n  x\n"])
def test_a_traceback_without_its_end_is_none(text: str) -> None:
    assert said(text, without="/ours/") is None


ARGV = ", ".join(f"'--option_{number}'" for number in range(50))
CALL = f"subprocess.CalledProcessError: Command '['/env/bin/python', {ARGV}]' returned non-zero exit status 2."
CALLS = f'Traceback (most recent call last):\n  File "/env/launch.py", line 9, in main\n    run()\n{CALL}'
SUBTYPE = """ValueError: Does not validate against any of the Union subtypes
Subtypes: [<class 'Logger'>, <class 'bool'>, <class 'NoneType'>]
Errors:
  - Expected a <class 'bool'>
  - Problem with given class_path 'MLFlowLogger':
      The filesystem tracking backend is in maintenance mode.
  - Expected a <class 'NoneType'>
Given value type: <class 'str'>
Given value: MLFlowLogger"""


@pytest.mark.parametrize(
    ("child", "found"),
    [
        (TRACE, Said(MISSING, TRACE)),
        (
            "/env/bin/python: can't open file '/code/wandb': [Errno 2] No such file or directory",
            Said("python: can't open file '/code/wandb': [Errno 2] No such file or directory"),
        ),
    ],
)
def test_a_launcher_that_repeats_its_command_is_no_cause_but_its_childs_error(child: str, found: Said) -> None:
    assert said(f"step 1\n{child}\n{CALLS}\n") == found
    assert ended_by(f"step 1\n{child}\n{CALLS}\n") == (found if found.traceback else None)


def test_a_command_that_failed_without_a_word_is_shown_without_most_of_its_arguments() -> None:
    found = said(f"step 1\n{CALLS}\n")
    assert found is not None
    assert found.line.startswith("subprocess.CalledProcessError: Command '['/env/bin/python', '--option_0'")
    assert found.line.endswith("… returned non-zero exit status 2.")
    assert len(found.line) < 200


def test_a_value_that_fits_no_type_has_the_reason_that_stands_below_it() -> None:
    trace = 'Traceback (most recent call last):\n  File "main.py", line 1\n'
    reason = "Problem with given class_path 'MLFlowLogger': The filesystem tracking backend is in maintenance mode."
    found = said(f"{trace}{SUBTYPE}\n")
    assert found is not None
    assert found.line == reason
    assert headline(SUBTYPE) == headline(f"rank 0: {SUBTYPE}") == reason
    only_types = SUBTYPE.replace("Problem with given class_path", "Expected a <class")
    assert headline(only_types) == SUBTYPE.splitlines()[0]
