"""What is taken from the stderr of a program as the error that ended it."""

import pytest

from torchyard.contract.lasterror import Said, said

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
