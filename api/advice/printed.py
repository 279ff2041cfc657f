"""Offers curves to a job that reports no metric, and prints numbers again and again."""

from collections import defaultdict
from dataclasses import dataclass
import re
import shlex

from api.advice.facts import Facts
from torchyard.host import terminal

_PAIR = re.compile(
    r"(?<![\w/.\-])(?P<key>[A-Za-z_][\w/\-]{0,39})(?P<between>['\"]? {0,3}[=:] {0,3}['\"]?| {1,3})"
    r"(?P<value>[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.:/])",
    re.IGNORECASE,
)
"""`loss=0.5`, `loss: 0.5`, as tqdm's postfix has it, too, `'loss': '0.5'` and `loss 0.5`; not a time or an address."""
_STEP = re.compile(r"\b(?P<word>step)\W{1,3}\d+\b", re.IGNORECASE)
"""The step of a line, as `step 10` or `Step: 10`."""
_TELLS = re.compile(r"loss|acc|err|ppl|perplexity|iou|f1|auc|bleu|reward|score", re.IGNORECASE)
_NO_METRIC = re.compile(
    r"epochs?|steps?|iter(?:ation)?s?|batch|rank|line|pid|port|seed|time|eta|version", re.IGNORECASE
)
_OFTEN = 3
"""In so many lines, with two numbers at least, it is a curve."""
_MOST_TEXT = 2000


@dataclass(frozen=True)
class Offer:
    """What makes a curve of a number in the log."""

    pattern: str
    step: str


def curves(facts: Facts) -> Offer | None:
    """Returns what makes curves of the numbers in the log; None for a job that has metrics."""
    script = facts.script is not None
    if not script or facts.job.metrics or not facts.lines or getattr(facts.job.spec, "metrics").patterns:  # noqa: B009
        return None
    printed: dict[str, list[str]] = defaultdict(list)
    steps: dict[str, set[str | None]] = defaultdict(set)
    quoted: set[str] = set()
    for line in facts.lines:
        text = terminal.plain(line.text[:_MOST_TEXT])
        pairs = {match["key"]: match for match in _PAIR.finditer(text) if _is_pair(match)}
        step = _STEP.search(text)
        for key, match in pairs.items():
            printed[key].append(match["value"])
            steps[key].add(step["word"] if step is not None and step.end() <= match.start() else None)
        quoted.update(key for key, match in pairs.items() if match["between"].strip("=: "))
    keys = [
        key
        for key, values in printed.items()
        if len(values) >= _OFTEN and len({*values}) > 1 and not _NO_METRIC.fullmatch(key)
    ]
    if not keys:
        return None
    key = min(keys, key=lambda each: (_TELLS.search(each) is None, -len(printed[each])))
    between = r"[^\w.+-]+" if key in quoted else "[ =:]+"
    named, before = re.escape(key), ""
    if len(steps[key]) == 1 and (word := next(iter(steps[key]))) is not None:
        named, before = f"(?P<key>{named})", rf"\b{word}\W+(?P<step>\d+)\b.*?"
    pattern = rf"{before}\b{named}{between}(?P<value>\S+)".replace(r"\-", "-")
    option = f"`torchyard run --metric {shlex.quote(pattern)} PROGRAM`"
    step = f"This log has {key}=…, and no curves: {option} makes one of it."
    if facts.job.state.terminal:
        step += f" `torchyard metrics {facts.job.id} --from-log {shlex.quote(pattern)}` makes one of what is stored."
    return Offer(pattern, step)


def _is_pair(match: re.Match[str]) -> bool:
    """Returns whether the number is the key's value: behind a space alone, it is that of a word that names one."""
    return not match["between"].isspace() or _TELLS.search(match["key"]) is not None
