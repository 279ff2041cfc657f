"""The code of a job over HTTP: who may read it, and what a stranger's tar cannot do."""

from io import BytesIO

import pytest

from tests.api.bundles import Packed, packed_files, upload_whole
from tests.api.service import ApiFixture, both_databases, sha256
from tests.api.test_problems import assert_problem
from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.bundles.tar import END, find_members, header, padding
from torchyard.contract.errors import InvalidBundle

FILES = {"a/run.sh": b"true\n", "big.txt": b"x" * (256 * 1024 + 1), "nul": b"a\0b", "train.py": "é <script>\n".encode()}


def submitted(service: ApiFixture, bundle: Packed, **spec: str) -> str:
    """Returns the path of a job's code, which is this bundle."""
    upload_whole(service.client, bundle)
    config = {"code": bundle_url(bundle.sha256)}
    return f"/v1/jobs/{service.submit(trainer='script', name='mine', config=config, **spec)['id']}/code"


@both_databases
def test_the_files_of_a_jobs_code_are_listed_and_small_texts_sent(service: ApiFixture) -> None:
    bundle = packed_files(FILES)
    path = submitted(service, bundle)
    found = service.get(path)
    assert (found["sha256"], found["note"], found["total"]) == (bundle.sha256, None, 4)
    assert [(file["path"], file["size"], file["sha256"]) for file in found["files"]] == [
        (name, len(content), None) for name, content in FILES.items()
    ]
    digests = {file["path"]: file["sha256"] for file in service.get(path, digests=True)["files"]}
    assert digests == {name: None if name == "big.txt" else sha256(content) for name, content in FILES.items()}
    answer = service.client.get(f"{path}/train.py")
    assert (answer.status_code, answer.content) == (200, FILES["train.py"])
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert_problem(service.client.get(f"{path}/big.txt"), 413, "file_too_large")
    assert_problem(service.client.get(f"{path}/nul"), 415, "not_text")
    for missing in ("none.py", "a", "%00", "a%2F..%2Ftrain.py", "/etc/passwd"):
        assert_problem(service.client.get(f"{path}/{missing}"), 404, "not_found")


def test_code_is_for_those_who_may_read_the_job(service: ApiFixture) -> None:
    service.act_as("ada")
    shared = submitted(service, packed_files(FILES), visibility="team")
    hidden = submitted(service, packed_files(FILES | {"z": b"secret"}), visibility="private")
    service.act_as("bob")
    assert service.get(shared)["total"] == 4
    assert service.client.get(f"{shared}/a/run.sh").text == "true\n"
    for path in (hidden, f"{hidden}/train.py"):
        assert_problem(service.client.get(path), 404, "not_found")


def test_code_that_is_not_stored_says_why(service: ApiFixture) -> None:
    recipe = f"/v1/jobs/{service.submit()['id']}/code"
    assert "recipe" in service.get(recipe)["note"]
    local = service.submit(trainer="script", name="mine", config={"code": "file:///srv/code"})["id"]
    assert "file:///srv/code" in service.get(f"/v1/jobs/{local}/code")["note"]
    assert_problem(service.client.get(f"/v1/jobs/{local}/code/train.py"), 404, "not_found")
    bundle = packed_files(FILES)
    path = submitted(service, bundle)
    service.client.post(f"{path.removesuffix('/code')}/cancel")
    assert service.client.delete(bundle.url).status_code == 204
    found = service.get(path)
    assert (found["files"], found["sha256"]) == ([], None)
    assert "deleted" in found["note"]


def test_of_many_files_the_first_are_listed_and_all_can_be_opened(service: ApiFixture) -> None:
    files = {f"f{number:05}": b"%d" % number for number in range(5002)}
    path = submitted(service, packed_files(files))
    found = service.get(path)
    assert (len(found["files"]), found["total"]) == (5000, 5002)
    assert service.client.get(f"{path}/f05001").text == "5001"


class Counting(BytesIO):
    """A file that counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def test_headers_are_found_without_reading_the_contents() -> None:
    files = {"a": b"x" * 3000, "b" * 200: b"", "ü": b"y" * 512}
    file = Counting(packed_files(files).tar)
    found = [*find_members(file, max_files=10, max_bytes=10_000)]
    assert file.taken == 512 * 8  # three headers, two of which have a name apart, in two blocks, and the end
    for placed, content in zip(found, files.values(), strict=True):
        file.seek(placed.offset)
        assert file.read(placed.member.size) == content


def entry(name: str, *, size: int, kind: bytes | None = None) -> bytes:
    block = bytearray(header(name, size=size, executable=False))
    if kind is not None:
        block[156:157] = kind
        block[148:156] = b"%06o\0 " % (sum(block[:148]) + sum(block[156:]) + 8 * ord(" "))
    return bytes(block)


@pytest.mark.parametrize(
    "tar",
    [
        entry("a", size=1 << 30) + b"x" * 512,  # its end lies far behind that of the tar
        entry("a", size=600) + b"x" * 512,
        entry("link", size=0, kind=b"2") + END,
        entry("hard", size=0, kind=b"1") + END,
        entry("sparse", size=0, kind=b"S") + END,
        entry("folder", size=0, kind=b"5") + END,
        entry("a", size=0).replace(b"0000000\0", b"0000001\0") + END,
        b"x" * 1024,
        b"",
    ],
)
def test_a_tar_that_was_never_verified_is_refused(tar: bytes) -> None:
    with pytest.raises(InvalidBundle):
        list(find_members(BytesIO(tar), max_files=10, max_bytes=len(tar)))


def test_no_more_headers_are_read_than_asked_for() -> None:
    tar = b"".join(header(f"f{number}", size=0, executable=False) for number in range(9)) + padding(0)
    file = Counting(tar)
    assert len([*find_members(file, max_files=5, max_bytes=len(tar))]) == 5
    assert file.taken == 5 * 512


@both_databases
def test_the_packages_are_those_of_the_newest_attempt_that_told_them(service: ApiFixture) -> None:
    service.act_as("ada")
    claim = service.start(service.submit()["id"])
    path = f"/v1/jobs/{claim.job_id}/packages"
    assert service.get(path) == {"attempt": None, "packages": {}}
    for version in ("2.13", "2.14"):
        service.record(claim, packages={"torch": version})
    assert service.get(path) == {"attempt": 1, "packages": {"torch": "2.14"}}
    service.client.patch(f"/v1/jobs/{claim.job_id}", json={"visibility": "private"})
    service.act_as("bob")
    assert_problem(service.client.get(path), 404, "not_found")
