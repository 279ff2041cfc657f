"""The rows of `bench.language`: what both programs train, and what is compared."""

from dataclasses import replace
import json
from pathlib import Path
from typing import Literal

import pytest

from bench.language import examples, rows
from bench.language.__main__ import MOST_APART, OURS, THEIRS, TRAININGS, furthest, rows_of, tokens_of_turns
from bench.language.settings import LanguageSettings, job
from bench.turns import Measured
from torchyard.contract.spec.spec import parse_spec

SHORT = LanguageSettings("llama", batch=2, settling=1, steps=2, log_every=2, turns=1, max_length=256)


@pytest.mark.parametrize("name", TRAININGS)
def test_both_programs_have_the_same_steps(name: str, tmp_path: Path) -> None:
    settings = replace(TRAININGS[name], folder=str(tmp_path))
    training = parse_spec(job(settings)).config.training  # pyright: ignore[reportAttributeAccessIssue] a recipe
    assert training.max_steps == settings.all_steps
    assert training.per_device_batch_size * training.gradient_accumulation_steps == settings.batch


@pytest.mark.parametrize("form", ["text", "prompt"])
def test_rows_have_the_documents_of_all_steps_with_what_is_counted(
    form: Literal["text", "prompt"], tmp_path: Path
) -> None:
    settings = replace(SHORT, folder=str(tmp_path), form=form, packing=form == "text")
    examples.write(settings, count=120)
    tokens = rows.write(settings)
    written = json.loads(settings.rows.read_text())
    assert len(written) == settings.batch * settings.all_steps
    assert sum(tokens) == sum(len(ids) for row in written for ids, _ in row)
    assert max(len(row) for row in written) > 1 or not settings.packing
    for ids, labels in (document for row in written for document in row):
        counted = [token for token, label in zip(ids, labels, strict=True) if label != rows.UNCOUNTED]
        assert labels[0] == rows.UNCOUNTED
        assert counted == ids[-len(counted) :]
        assert (len(counted) == len(ids) - 1) == (form == "text")


def test_a_turn_has_the_tokens_of_its_measured_steps() -> None:
    """The first turn is a step shorter, and the first step of each turn is not measured."""
    tokens = [10**step for step in range(SHORT.all_steps)]
    assert tokens_of_turns(SHORT, tokens) == [10**3 + 10**4]


def test_speeds_and_curves_miss_their_targets() -> None:
    def found(ours: float, apart: float) -> list[bool | None]:
        measured = {OURS: Measured([1 / ours], 1, 1), THEIRS: Measured([1.0], 1, 1)}
        tokens = [100] * SHORT.all_steps
        return [row.met for row in rows_of("LoRA", SHORT, tokens=tokens, measured=measured, apart=apart)]

    assert found(1.0, 1.0) == [True, True]
    assert found(0.9, MOST_APART * 1.01) == [False, False]


def test_the_furthest_step_counts_with_its_own_loss_as_the_measure() -> None:
    assert furthest([4.0, 2.0002], [4.0, 2.0]) == pytest.approx(100)
    with pytest.raises(ValueError, match="argument"):
        furthest([4.0], [4.0, 2.0])
