"""`python -m bench.language` fine-tunes a small language model beside TRL's SFTTrainer, in turns.

Both begin with the same weights, and train on the same sequences in the same order with the same optimizer, in fp32
and without recomputing layers. One row has the tokens a second, the next one the largest distance of the loss curves.
Run it in the environment that has TRL: `make bench-language`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
import json
from pathlib import Path

from bench import table
from bench.language import examples, rank, rows
from bench.language.settings import LanguageSettings, job
from bench.service import scratch
from bench.table import Row
from bench.torchrun import clean_up_on_sigterm, environment, run_dir
from bench.turns import Measured, running, take_turns

OURS, THEIRS = "torchyard", "TRL"
PROGRAMS = {OURS: "bench.language.rank", THEIRS: "bench.peers.sft"}
RATIO = 0.95
"""The least ratio of the trainer's speed to TRL's."""
MOST_APART = 100.0
"""The largest difference of a step's loss from TRL's, in millionths."""
_EXAMPLES = 1000
_SEQUENCES = LanguageSettings("llama", batch=8, settling=2, steps=10, log_every=10, lr=0.002, weight_decay=0.01)
_PACKED = replace(_SEQUENCES, batch=1)
_PROMPTS = replace(_SEQUENCES, form="prompt", packing=False)
TRAININGS = {
    "LoRA, packed, 1 × 512 tokens": replace(_PACKED, lr=0.01),
    "all weights, packed, 1 × 512 tokens": replace(_PACKED, method="full"),
    "LoRA, prompts and completions, 8 a step": replace(_PROMPTS, lr=0.01),
    "all weights, prompts and completions, 8 a step": replace(_PROMPTS, method="full"),
    "all weights, prompts and completions, 4 × 2 a step": replace(_PROMPTS, method="full", accumulation=4),
}


def measure() -> Iterator[Row]:
    for what, settings in TRAININGS.items():
        with scratch() as folder:
            placed = replace(settings, folder=str(folder), data=str(folder / "data"))
            examples.write(placed, count=_EXAMPLES)
            tokens = rows.write(placed)
            measured = _race(placed)
            apart = furthest(*(_losses(placed, name) for name in (rank.PROGRAM, "trl")))
        yield from rows_of(what, placed, tokens=tokens, measured=measured, apart=apart)


def rows_of(
    what: str, settings: LanguageSettings, *, tokens: Sequence[int], measured: dict[str, Measured], apart: float
) -> Iterator[Row]:
    """Yields the row of the speeds, and that of the curves. `tokens`: of each step."""
    counts = tokens_of_turns(settings, tokens)
    speeds = {
        name: [count / seconds for count, seconds in zip(counts, found.seconds, strict=True)]
        for name, found in measured.items()
    }
    yield Row(what, "tokens/s", speeds[OURS], peer=THEIRS, theirs=speeds[THEIRS], ratio_at_least=RATIO)
    steps = f"– its losses from those of {THEIRS}, the furthest of {settings.all_steps} steps"
    yield Row(steps, "ppm", [apart], at_most=MOST_APART)


def tokens_of_turns(settings: LanguageSettings, tokens: Sequence[int]) -> list[int]:
    """Returns the tokens that each timed turn but the first measures, of those of each step."""
    before = [0, *accumulate(tokens)]
    ends = [(turn + 1) * settings.turn - settings.skipped for turn in range(1, settings.timed)]
    return [before[end] - before[end - settings.steps] for end in ends]


def furthest(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Returns the largest difference between the losses of one step, in millionths of TRL's."""
    return max(abs(own - other) / other for own, other in zip(ours, theirs, strict=True)) * 1e6


def _race(settings: LanguageSettings) -> dict[str, Measured]:
    folder = Path(settings.folder)
    file = folder / "settings.json"
    settings.write(file)
    env = environment(run_dir(folder / "run", job(settings)), data=settings.data)
    programs = {name: ("-m", module, str(file)) for name, module in PROGRAMS.items()}
    with running(programs, ranks=1, folder=folder, env=env) as started:
        return take_turns(started, turns=settings.turns)


def _losses(settings: LanguageSettings, program: str) -> list[float]:
    return json.loads(settings.losses(program).read_text())


if __name__ == "__main__":
    clean_up_on_sigterm()
    table.main(measure)
