"""The short forms of ids, and what they name."""

import pytest

from torchyard.client.shortids import is_named, only_id, shortened
from torchyard.contract.errors import Conflict


def id_of(end: str, kind: str = "job") -> str:
    return f"{kind}_{end:0>32}"


def test_an_id_is_shown_by_as_many_last_digits_as_differ() -> None:
    assert shortened([id_of("3f09c1"), id_of("3f09c1", "swp"), "digits", "job_1"]) == {
        id_of("3f09c1"): "job_…3f09c1",
        id_of("3f09c1", "swp"): "swp_…3f09c1",
    }
    alike = [id_of("a3f09c1"), id_of("b3f09c1"), id_of("a3f09c1")]
    assert [*shortened(alike).values()] == ["job_…a3f09c1", "job_…b3f09c1"]


@pytest.mark.parametrize("kind", ["job", "swp", "sch", "ckpt", "wrk", "tok", "ntf"])
def test_what_is_shown_of_an_id_names_it_with_and_without_its_kind(kind: str) -> None:
    whole, other = id_of("0192abcdef3f09c1", kind), id_of("3f09c2", kind)
    (short,) = shortened([whole]).values()
    known = {whole: "digits, failed", other: "digits, running"}
    for ref in (short, short.replace("…", "..."), short.replace("…", ""), short.partition("_")[2], short[-6:], whole):
        assert only_id(ref, known) == whole, ref
    assert only_id(f"no{short}", known) is None
    with pytest.raises(Conflict, match=r"digits, failed\n.*digits, running"):
        only_id(f"{kind}_0000", known)


def test_digits_without_a_kind_are_an_end_alone() -> None:
    assert is_named(id_of("3f09c1"), "job_0000") and not is_named(id_of("3f09c1"), "…0000")
    assert not is_named(id_of("3f09c1"), "0000")
