"""What a job's code requires is read by a process of its own, with limits."""

from collections.abc import Generator
import os
from pathlib import Path

import pytest

from tests.approved import Approved
from tests.worker.attempt import wait_for
from tests.worker.packages.fixture import PROJECT, Packages, run_python
from tests.worker.packages.index import Index, serving
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import Script
from worker.packages import lines
from worker.packages.code import Code
from worker.packages.installation import Installed, NotInstalled, sensible
from worker.packages.metadata import metadata_of
from worker.packages.order import MAX_LOCK_BYTES, MAX_TEXT_BYTES
from worker.packages.provided import overridden

SLOW = "a." * 90_000 + "b = 1"  # 180 KB, for which the parser needs a minute


def _script(content: str) -> str:
    return "# /// script\n" + "".join(f"# {line}\n" for line in content.splitlines()) + "# ///\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [("train.py", _script(SLOW)), pytest.param("pyproject.toml", SLOW, marks=pytest.mark.thorough)],
)
def test_slow_text_ends_the_process_that_reads_it_while_the_worker_goes_on(
    packages: Packages, name: str, text: str, approved: Approved
) -> None:
    packages.read_seconds = 1
    code = packages.folder / "code"
    code.mkdir()
    (code / name).write_text(text)
    (code / "uv.lock").write_text(text)
    config = Script.model_validate(
        {"code": "file:///code", "entrypoint": "train.py", "requirements": "script" if name == "train.py" else name}
    )
    installation = packages.begin_in(code, config)
    with pytest.raises(DataError) as raised:
        assert installation.poll() is None
        packages.finish(installation)
    assert str(raised.value) == approved.of_row("message")
    assert packages.installers() == []


@pytest.mark.thorough
def test_text_that_needs_much_memory_is_refused(packages: Packages) -> None:
    installation = packages.begin_locked("0" * 64, lock="".join(f"[a{n}.b.c]\n" for n in range(1_100_000)))
    with pytest.raises(DataError, match=r"pyproject.toml needs more than 1 GiB of memory to be read"):
        packages.finish(installation)


def test_text_that_is_nested_deeply_is_refused(packages: Packages, approved: Approved) -> None:
    with pytest.raises(DataError) as raised:
        packages.install(_script("x = " + "[" * 100_000), name="train.py")
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize(
    "text",
    [
        "alpha; " + "(" * 50_000 + "os_name == 'posix'" + ")" * 50_000,
        "-r more\0.txt",
    ],
)
def test_text_that_no_parser_expects_is_no_failure_of_the_host(
    packages: Packages, text: str, approved: Approved
) -> None:
    with pytest.raises(DataError) as raised:
        packages.install(text)
    assert str(raised.value) == approved.of_row("message")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "# " + "x" * MAX_TEXT_BYTES),
        ("train.py", _script('x = "' + "x" * MAX_TEXT_BYTES + '"')),
        ("train.py", "#" * (MAX_LOCK_BYTES + 1)),
    ],
    ids=["requirements", "metadata", "script"],
)
def test_what_is_too_large_is_refused_with_its_size(
    packages: Packages, name: str, text: str, approved: Approved
) -> None:
    with pytest.raises(DataError) as raised:
        packages.read(text, name=name)
    assert str(raised.value) == approved.of_row("message")


def test_a_lock_that_is_too_large_is_refused_with_its_size(packages: Packages, approved: Approved) -> None:
    code, config = packages.locked("0" * 64, lock="#" * MAX_LOCK_BYTES)
    with pytest.raises(DataError) as raised:
        packages.read_in(code, config)
    assert str(raised.value) == approved("message", max_lock_bytes=MAX_LOCK_BYTES)


@pytest.mark.thorough
def test_a_large_script_with_little_metadata_is_read(packages: Packages, index: Index) -> None:
    index.add("alpha")
    packages.installed(_script('dependencies = ["alpha"]') + "x = 1\n" * 100_000, name="train.py")


def test_blocks_of_metadata_are_found_as_the_standard_says(approved: Approved) -> None:
    begin, end = "# /// script", "# ///"
    block, table = metadata_of(f"import x\n{begin}\n# a = 1\n#\n# # {end}\n{end}\n# more\n\n{end}\n", "train.py")
    assert (block, table) == (f"{begin}\n# a = 1\n#\n# # {end}\n{end}\n", {"a": 1})
    for text, problem in {
        f"{begin}\n{end}\n": "no block",
        f"{begin}\n# a = 1\nx = 1\n{end}\n": "no block",
        f" {begin}\n# a = 1\n{end}\n": "no block",
        f"{begin}\n#a = 1\n{end}\n": "no block",
        f"{begin}\n# a = 1\n{end}\n\n{begin}\n# a = 1\n{end}\n": "more than one block",
    }.items():
        with pytest.raises(DataError) as raised:
            metadata_of(text, "train.py")
        assert str(raised.value) == approved("message", problem=problem)


def test_included_files_are_read_too(packages: Packages, index: Index, tmp_path: Path, approved: Approved) -> None:
    index.add("alpha")
    index.add("alpha", "2.0")
    index.add("beta")
    code = packages.folder / "code-0"
    (code / "sets").mkdir(parents=True)
    (code / "sets/more.txt").write_text("-r ../requirements.txt\nbeta \\\n  >=1  # needed\n--constraint=limits.txt\n")
    (code / "sets/limits.txt").write_text("alpha<2\n")
    found = packages.installed("alpha\n-r sets/more.txt\n")
    assert run_python(found.environment, "import alpha, beta; print(alpha.version, beta.version)") == "1.0 1.0\n"
    (code / "sets/limits.txt").write_text("alpha>=2\n")
    other = packages.begin_in(code, _requirements())
    wait_for(lambda: other.poll() or len({path.parent for path in packages.environments()}) == 2, "another environment")
    other.close()
    (code / "sets/limits.txt").write_text("-r ../../outside.txt\n")
    (packages.folder / "outside.txt").write_text("alpha\n")
    with pytest.raises(DataError) as raised:
        packages.read_in(code, _requirements())
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_files_that_include_one_another_are_read_once() -> None:
    read: list[str] = []

    def text(name: str, most: int) -> str:
        read.append(name)
        return "-r a.txt\n-r ./b.txt\n-c a.txt\n" + name[0]

    found = lines.Lines(text, own_index=False)
    found.add_file("a.txt")
    assert sorted(read) == ["a.txt", "a.txt", "b.txt", "b.txt"]
    assert (sorted(found.requirements), sorted(found.constraints)) == (["a\n", "b\n"], ["a\n", "b\n"])


def test_all_included_files_together_have_one_limit(approved: Approved) -> None:
    found = lines.Lines(lambda name, most: f"-r {name}x\n" + "#" * (most // 3), own_index=False)
    with pytest.raises(DataError) as raised:
        found.add_file("a")
    assert str(raised.value) == approved("message", max_text_bytes=MAX_TEXT_BYTES)


VERSIONS = {"torch": "2.14.1+cu130", "torchvision": "0.29.2", "nvidia-cublas": "13.1.0"}
"""As a worker has them."""


@pytest.mark.parametrize("own_index", [False, True])
@pytest.mark.parametrize(
    ("text", "own_torch", "note"),
    [
        ("torch", False, ""),
        (" Torch>=2 ", False, ""),
        ("torch==2.14.1", False, ""),
        ("torch==2.14.1+cu130", False, ""),
        ("torch==2.14.1+cpu", True, "torch==2.14.1+cpu is not the worker's torch 2.14.1+cu130"),
        ("torch<2.6;python_version>'3'", True, "torch<2.6;python_version>'3' is not the worker's torch 2.14.1+cu130"),
        ("torch<2.6;python_version<'3'", False, ""),
        ("torchvision==0.20.0", True, "torchvision==0.20.0 is not the worker's torchvision 0.29.2"),
        ("torchaudio", True, "the worker has no torchaudio"),
        ("nvidia_cublas==12.1", False, "nvidia_cublas==12.1 is not the worker's nvidia-cublas 13.1.0"),
        ("torch-x==1", False, ""),
        ("pytorch==1", False, ""),
    ],
)
def test_the_workers_packages_are_taken_where_they_are_what_is_asked_for(
    text: str, own_torch: bool, note: str, own_index: bool
) -> None:
    read = lines.Lines(lambda name, most: text, own_index=own_index, versions=VERSIONS)
    read.add_file("requirements.txt")
    found = read.wishes.decide()
    assert (found.own_torch, [*found.names]) == (own_torch, [] if own_torch else sorted(VERSIONS))
    assert [each.partition(":")[0] for each in found.notes] == ([note] if note else [])


def test_a_constraint_decides_only_about_what_is_required() -> None:
    texts = {"a.txt": "-c b.txt\n", "c.txt": "-c b.txt\ntorch", "b.txt": "torch==2.5.0"}
    for name, own_torch in (("a.txt", False), ("c.txt", True)):
        read = lines.Lines(lambda name, most: texts[name], own_index=False, versions=VERSIONS)
        read.add_file(name)
        assert read.wishes.decide().own_torch is own_torch


def test_what_a_package_asks_of_the_workers_and_does_not_get_is_said() -> None:
    metadata = """Metadata-Version: 2.1
Name: alpha
Version: 1.0
Requires-Dist: torch<2.6,>=2.0
Requires-Dist: torchvision>=0.20; extra == "vision"
Requires-Dist: torchvision==0.20
Requires-Dist: numpy

Requires-Dist: torch<1
"""
    assert overridden(metadata, VERSIONS) == [
        "alpha 1.0 asks for torch<2.6,>=2.0, and gets the worker's 2.14.1+cu130",
        "alpha 1.0 asks for torchvision==0.20, and gets the worker's 0.29.2",
    ]


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("train.py", _script('requires-python = ">=3.99"\ndependencies = ["alpha"]'), ">=3.99"),
        ("train.py", _script('requires-python = "<3"\ndependencies = []'), "<3"),
    ],
)
def test_a_program_for_another_python_is_refused_before_anything_is_installed(
    packages: Packages, name: str, text: str, wanted: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        packages.read(text, name=name)
    assert f"{name} requires Python {wanted}, and packages are installed for the worker's" in raised.value.message


def test_a_project_for_another_python_is_refused(packages: Packages) -> None:
    code, config = packages.locked("0" * 64)
    (code / "pyproject.toml").write_text(PROJECT.replace(">=3.11", ">=3.99"))
    with pytest.raises(ConfigError, match=r"pyproject.toml requires Python >=3.99"):
        packages.read_in(code, config)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", ""),
        ("  ^^^^^\n   ~~~\n", ""),
        ("a\nValueError: no\n     ^^^^^^^^\nhint: try", "ValueError: no"),
        (
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because gamma was not found in the package"
            " registry and you require gamma, we\n      can conclude that your requirements are unsatisfiable.\n",
            "Because gamma was not found in the package registry and you require gamma, we can conclude that your"
            " requirements are unsatisfiable.",
        ),
        (
            "  × Failed to build `gamma==1.0`\n  ├─▶ The build backend returned an error\n  ╰─▶ Call to"
            " `build_wheel` failed (exit status: 1)\n\n      [stderr]\n      error: command 'gcc' failed\n"
            "      hint: This usually indicates a problem with the package.",
            "error: command 'gcc' failed",
        ),
    ],
)
def test_the_evidence_of_a_failed_installation_is_its_last_sensible_line(words: str, line: str) -> None:
    assert sensible(words) == line


@pytest.fixture
def other() -> Generator[Index]:
    """Another index, with the packages `alpha` and `evil`."""
    with serving() as served:
        served.add("alpha")
        served.add("evil")
        yield served


REFUSED = {
    "alpha @ {file}": "the address of alpha",
    "alpha@{file}": "the address of alpha",
    "alpha\nevil \\\n @ {file}": "the address of evil",
    "alpha @ git+{url}": "the address of alpha",
    "git+{url}": "git+",
    "{file}": "http://",
    "-e git+{url}": "-e",
    "-r {url}": "-r http://",
    "-r{url}": "-r http://",
    "--requirement={url}": "-r http://",
    "-c {url}": "-c http://",
    "-i {url}": "-i",
    "--index-url {url}": "--index-url",
    "  --extra-index-url={url}": "--extra-index-url",
    "alpha --extra-index-url {url}": "--extra-index-url",
    "alpha --hash=sha256:00 --index-url={url}": "--index-url",
    "--only-binary :all: --index-url={url}": "--only-binary",
    "--pre\\\n--index-url={url}": "--pre--index-url",
    "--find-links {url}": "--find-links",
    "-f {url}": "-f",
    "--trusted-host other": "--trusted-host",
    "--config-settings x": "--config-settings",
}


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize(("text", "option"), REFUSED.items())
def test_files_name_no_place_where_the_operator_has_chosen_the_index(
    text: str, option: str, depth: int, approved: Approved
) -> None:
    text = text.format(url="http://other.example/simple", file="http://other.example/alpha-1.0-py3-none-any.whl")
    files = {"0.txt": "-r 1.txt\n", "1.txt": "alpha\n-c 2.txt\n", "2.txt": f"{text}\n"}
    found = lines.Lines(lambda name, most: files[name], own_index=True)
    with pytest.raises(ConfigError) as refused:
        found.add_file(f"{2 - depth}.txt")
    assert str(refused.value) == approved.of_row("message")
    assert f"leave {option}" in refused.value.message


def test_an_included_file_reaches_no_other_index(packages: Packages, other: Index, approved: Approved) -> None:
    code = packages.folder / "code-0"
    code.mkdir()
    (code / "more.txt").write_text(f"evil\n--extra-index-url {other.url}\n")
    with pytest.raises(ConfigError) as raised:
        packages.read("-r more.txt\n")
    assert str(raised.value) == approved("message")
    assert other.asked == []


def test_plain_lines_are_allowed_where_the_operator_has_chosen_the_index(approved: Approved) -> None:
    text = '--no-binary alpha\nalpha[x]>=1,<2 ; python_version > "3" \\\n  --hash=sha256:00 \\\n\t--hash sha256:11\n'
    assert lines.checked(text, "a.txt") == approved("checked")
    with pytest.raises(DataError) as raised:
        lines.checked("??", "a.txt")
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize(
    "toml",
    [
        'dependencies = ["alpha @ {file}"]',
        'dependencies = ["alpha\\n--index-url={url}"]',
        'dependencies = ["-r {url}"]',
        'dependencies = []\n[[tool.uv.index]]\nurl = "{url}"',
        'dependencies = ["alpha"]\n[tool.uv.sources]\nalpha = {{url = "{file}"}}',
        'dependencies = ["alpha"]\n[tool.uv]\nconstraint-dependencies = ["alpha @ {file}"]',
    ],
)
def test_metadata_names_no_place_where_the_operator_has_chosen_the_index(
    packages: Packages, other: Index, toml: str, approved: Approved
) -> None:
    with pytest.raises(ConfigError) as raised:
        packages.read(_script(toml.format(url=other.url, file=_file(other))), name="train.py")
    assert str(raised.value) == approved.of_row("message", url=other.url)
    assert other.asked == []


@pytest.mark.parametrize(
    ("project", "lock"),
    [
        ('[[tool.uv.index]]\nurl = "{url}"\n', ""),
        ('[tool.uv.sources]\nalpha = {{ url = "{file}" }}\n', ""),
        ("", '[[package]]\nname = "evil"\nversion = "1.0"\nsource = {{ url = "{file}" }}\n'),
        ("", '[[package]]\nname = "evil"\nversion = "1.0"\nsource = {{ git = "{url}#0" }}\n'),
    ],
)
def test_projects_name_no_place_where_the_operator_has_chosen_the_index(
    packages: Packages, index: Index, other: Index, project: str, lock: str, *, approved: Approved
) -> None:
    project, lock = (text.format(url=other.url, file=_file(other)) for text in (project, lock))
    code, config = packages.locked(index.add("alpha"), project=project, lock=lock)
    with pytest.raises(ConfigError) as raised:
        packages.read_in(code, config)
    assert str(raised.value) == approved.of_row("message")
    assert other.asked == []


def test_a_lock_of_another_index_is_installed_from_the_operators(
    packages: Packages, index: Index, other: Index
) -> None:
    lock = packages.begin_locked(index.add("alpha"))
    index.add("alpha", "2.0")
    path = packages.folder / "code-0/uv.lock"
    path.write_text(path.read_text().replace(index.url.removesuffix("/simple"), other.url.removesuffix("/simple")))
    assert isinstance(packages.finish(lock), Installed)
    assert (other.asked, index.downloads()) == ([], ["alpha-1.0-py3-none-any.whl"])


def test_another_index_is_used_where_the_operator_has_chosen_none(
    packages: Packages, index: Index, other: Index
) -> None:
    packages.own_index = packages.builds = False
    code = packages.folder / "code-0"
    code.mkdir()
    (code / "where.txt").write_text(f"--index-url {other.url}\n")
    assert isinstance(packages.install("alpha\n-r where.txt\n"), Installed)
    assert other.downloads() == ["alpha-1.0-py3-none-any.whl"]
    assert index.asked == []


@pytest.mark.thorough
def test_an_address_in_the_metadata_of_a_package_is_refused(packages: Packages, index: Index, other: Index) -> None:
    index.add("kappa", needs=f"Requires-Dist: evil @ {_file(other, 'evil')}\n")
    found = packages.install("kappa\n")
    assert isinstance(found, NotInstalled)
    assert "URL dependencies must be expressed as direct requirements" in " ".join(found.message.split())
    assert other.asked == []


def test_nothing_is_built_where_the_operator_allows_wheels_alone(packages: Packages, index: Index) -> None:
    packages.builds = False
    index.add_source("gamma", build="raise SystemExit('built')")
    found = packages.install("gamma\n")
    assert isinstance(found, NotInstalled)
    assert "built" not in found.message


_WHOLE = "[tool.uv]\nno-binary-package = ['gamma']"


@pytest.mark.parametrize("own_index", [True, False])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "gamma\n--no-binary gamma\n"),
        ("requirements.txt", "gamma\n--only-binary :none: --no-binary=gamma\n"),
        ("requirements.txt", "gamma\r--no-binary gamma\n"),
        ("requirements.txt", "gamma\n--no-bi\\\nnary gamma\n"),
        ("requirements.txt", "-r https://localhost/more.txt\n"),
        ("train.py", _script(f"dependencies = ['gamma']\n{_WHOLE}")),
    ],
)
def test_no_job_has_a_package_built_where_the_operator_allows_wheels_alone(
    packages: Packages, index: Index, name: str, text: str, own_index: bool
) -> None:
    packages.builds, packages.own_index = False, own_index
    index.add_source("gamma", build="raise SystemExit('built')")
    place = f"--index-url {index.url}\n" if name == "requirements.txt" and not own_index else ""
    with pytest.raises(ConfigError, match=r"leave .*(no-binary|https://localhost|tool\.uv).* out"):
        packages.read(place + text, name=name)
    assert index.asked == []


def test_what_cannot_be_read_is_said(packages: Packages) -> None:
    code = packages.folder / "code"
    code.mkdir()
    (code / "train.py").write_text("print(1)")
    (code / "outside.txt").symlink_to("/etc/passwd")
    (code / "bytes.txt").write_bytes(b"\xff")
    for name, message in {
        "script": r"train.py has no block of metadata that begins with `# /// script`",
        "none.txt": r"there is no .*none.txt",
        "outside.txt": r"outside.txt is outside the code folder",
        "bytes.txt": r"bytes.txt is not a text in UTF-8",
    }.items():
        with pytest.raises(DataError, match=message):
            packages.read_in(code, _requirements(name))


def test_a_link_that_takes_the_place_of_the_folder_or_the_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    outside, code = tmp_path / "outside", tmp_path / "code"
    for folder in (outside, code):
        folder.mkdir()
        (folder / "private.txt").write_text("secret")
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(DataError) as raised:
        Code(str(tmp_path / "link")).text("private.txt", 100)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)

    def replaced(path: Path) -> bool:
        path.unlink()
        path.symlink_to(outside / "private.txt")
        return True

    monkeypatch.setattr(os.path, "isfile", replaced)
    with pytest.raises(DataError) as raised:
        Code(str(code)).text("private.txt", 100)
    assert str(raised.value) == approved("changed while read", tmp_path=tmp_path)


def _requirements(name: str = "requirements.txt") -> Script:
    return Script.model_validate({"code": "file:///code", "entrypoint": "train.py", "requirements": name})


def _file(index: Index, name: str = "alpha") -> str:
    return f"{index.url.removesuffix('/simple')}/files/{name}-1.0-py3-none-any.whl"
