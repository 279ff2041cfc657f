"""Values of secrets are found in bytes, wherever they are cut."""

import json

import pytest

from worker.host.secret_bytes import SecretBytes

PEM = "-----BEGIN KEY-----\n" + "\n".join(f"line {number} of the private key é" for number in range(5)) + "\n"


@pytest.mark.parametrize("value", ["abcd", "p\tq\"r'sé", PEM, "x" * 3000])
@pytest.mark.parametrize("others", [0, 100])
def test_a_value_is_found_as_it_is_and_as_json_and_python_write_it(value: str, others: int) -> None:
    secrets = SecretBytes([value, *(f"other value {number}" for number in range(others))])
    for text in (value, json.dumps({"key": value}), json.dumps(value, ensure_ascii=False), repr(value)):
        data = b"\xff\0before " + text.encode() + b" after"
        for size in (1, 7, 4096) if len(data) < 500 else (701, 4096):
            scan = secrets.scan()
            for start in range(0, len(data), size):
                scan.update(data[start : start + size])
            assert scan.found
    scan = secrets.scan()
    scan.update(b"\0" * 5000 + value[:-1].encode()[:2])
    assert not scan.found


def test_indented_lines_are_found_and_short_values_are_not_searched_for() -> None:
    assert SecretBytes([PEM]).are_in("\r\n".join(f"    {line}" for line in PEM.splitlines()).encode())
    assert not SecretBytes(["abc", ""])
    scan = SecretBytes(["abc"]).scan()
    scan.update(b"abc")
    assert not scan.found


def test_many_values_are_found_in_few_passes() -> None:
    secrets = SecretBytes(f"value-{number:05}" for number in range(2000))
    assert secrets.are_in(b"\0" * 100_000 + b"value-01999")
    assert not secrets.are_in(b"\0" * 100_000 + b"value-0199")
