"""Folders of an attempt in its arguments: what becomes a path, and what stays."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from torchyard.contract.attempts.expansion import FOLDERS, MOST_EXPANDED_BYTES, expanded
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.errors import ConfigError

HERE = {"TORCHYARD_MOUNTS": "/m", "TORCHYARD_RUN_DIR": "/r $HOME ${TORCHYARD_MOUNTS}"}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("$TORCHYARD_MOUNTS/data", "/m/data"),
        ("--data=${TORCHYARD_MOUNTS}data", "--data=/mdata"),
        ("$TORCHYARD_MOUNTS:$TORCHYARD_MOUNTS", "/m:/m"),
        ("$$TORCHYARD_MOUNTS/data", "$TORCHYARD_MOUNTS/data"),
        ("$${TORCHYARD_MOUNTS}", "${TORCHYARD_MOUNTS}"),
        ("$$$TORCHYARD_MOUNTS", "$$TORCHYARD_MOUNTS"),
        (
            "$HOME $1 $ $$ ${x} $(id) `id` \\$TORCHYARD_X $$TORCHYARD_X",
            "$HOME $1 $ $$ ${x} $(id) `id` \\$TORCHYARD_X $$TORCHYARD_X",
        ),
        ("$TORCHYARD_MOUNTSX", "$TORCHYARD_MOUNTSX"),
        ("$TORCHYARD_MOUNTS2 $TORCHYARD_MOUNTSdata", "$TORCHYARD_MOUNTS2 $TORCHYARD_MOUNTSdata"),
        ("$TORCHYARD_MOUNTSé", "/mé"),
        ("${TORCHYARD_MOUNTS", "${TORCHYARD_MOUNTS"),
        ("$torchyard_mounts", "$torchyard_mounts"),
        ("$TORCHYARD_CHECKPOINT_DIR", "$TORCHYARD_CHECKPOINT_DIR"),
        ("$TORCHYARD_RUN_DIR", "/r $HOME ${TORCHYARD_MOUNTS}"),
        ("[$TORCHYARD_RESUME_FROM|${TORCHYARD_INIT_FROM}]", "[|]"),
        (
            "$TORCHYARD_SECRETS $TORCHYARD_JOB_ID $TORCHYARD_CONFIG",
            "$TORCHYARD_SECRETS $TORCHYARD_JOB_ID $TORCHYARD_CONFIG",
        ),
    ],
)
def test_folders_become_paths_and_all_else_stays(text: str, made: str) -> None:
    assert expanded(text, HERE) == made


def test_no_variable_with_a_secret_or_a_descriptor_is_expanded() -> None:
    assert FOLDERS.isdisjoint({Env.SECRETS.value, Env.LISTENER.value, Env.ISOLATION.value})
    everything = {name.value: "x" for name in Env}
    for name in {*everything} - FOLDERS:
        assert expanded(f"${name} ${{{name}}}", everything) == f"${name} ${{{name}}}"


@given(st.text(alphabet="$TORCHYARD_MOUNTS{}/a \n", max_size=40))
def test_a_text_without_a_folder_stays(text: str) -> None:
    if not any(name in text for name in FOLDERS):
        assert expanded(text, HERE) == text


def test_what_becomes_too_long_for_the_kernel_is_refused() -> None:
    many = "$TORCHYARD_RUN_DIR" * 500
    with pytest.raises(ConfigError, match="has more than"):
        expanded(many, {"TORCHYARD_RUN_DIR": "/r" * 200})
    assert expanded("x" * (MOST_EXPANDED_BYTES + 1), HERE) == "x" * (MOST_EXPANDED_BYTES + 1)
