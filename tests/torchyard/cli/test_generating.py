"""`torchyard predict` with language models: from options, files and stdin, to pipes and terminals; and `export`."""

from collections.abc import Iterator
import json
from pathlib import Path
import shutil
from subprocess import CompletedProcess

import pytest
import torch

from tests.approved import Approved
from tests.rows import each_row
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.terminal import in_terminal
from tests.torchyard.cli.test_predict import serve
from tests.torchyard.client.answers import JOB, job
from tests.torchyard.client.fake_server import TOKEN, FakeServer
from tests.torchyard.models.languages import adapter, whole
from tests.torchyard.models.test_loading import digits, films
from tests.trainer.bases import tiny_base
from tests.trainer.rendering import rendered_here
import torchyard
from torchyard.models import Generator


@pytest.fixture(scope="module", autouse=True)
def rendered() -> Iterator[None]:
    """Templates are rendered in this process."""
    with rendered_here():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints and a base."""
    made = tmp_path_factory.mktemp("models")
    tiny_base(made / "base")
    torch.save(adapter(made / "base"), made / "best.pt")
    torch.save(whole(tiny_base(made / "plain", template=None)), made / "whole.pt")
    torch.save(digits(), made / "digits.pt")
    torch.save(films(), made / "films.pt")
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> Generator:
    found = torchyard.load(folder / "best.pt", device="cpu")
    assert isinstance(found, Generator)
    return found


def run(folder: Path, *arguments: str, stdin: str = "", command: str = "predict") -> CompletedProcess[str]:
    return run_in_process([command, *arguments], environment(None, ""), stdin=stdin, cwd=folder)


def test_prompts_come_from_options_files_and_stdin(folder: Path, model: Generator, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("The yard \n\nA\n")
    how = ("--max-tokens", "6", "--temperature", "0.8", "--top-p", "0.9", "--seed", "3")
    files = (str(tmp_path / "prompts.txt"), "-", "--prompt", "Who", "--prompt", "Is")
    done = run(folder, "best.pt", *files, *how, "--json", "--batch-size", "2", stdin="last\n\n")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["prompt"] for row in found] == ["Who", "Is", "The yard ", "A", "last"]
    expected = model.predict("The yard ", max_new_tokens=6, temperature=0.8, top_p=0.9, seed=3)
    assert found[2] == expected.as_dict()
    assert {*found[0]} == {"prompt", "text", "tokens", "finish"}


def test_the_text_alone_is_written_for_one_prompt(folder: Path, model: Generator) -> None:
    done = run(folder, "best.pt", "--prompt", "The yard", "--max-tokens", "5")
    one = model.generate("The yard", max_new_tokens=5)
    assert (done.returncode, done.stdout) == (0, f"{one}\n"), done.stderr
    several = run(folder, "best.pt", "--prompt", "The yard", "--prompt", "a\nb", "--max-tokens", "5").stdout
    assert several == f"> The yard\n{one}\n> a b\n{model.generate(f'a{chr(10)}b', max_new_tokens=5)}\n"


def test_instructions_come_before_each_prompt(folder: Path, model: Generator) -> None:
    done = run(folder, "best.pt", "--prompt", "The yard", "--system", "Be brief.", "--max-tokens", "5", "--json")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The yard"}]
    assert json.loads(done.stdout) == {**model.predict(messages, max_new_tokens=5).as_dict(), "prompt": "The yard"}


@pytest.mark.thorough
def test_a_terminal_gets_the_text_as_it_is_made_without_control_characters(folder: Path, tmp_path: Path) -> None:
    state = whole(folder / "base")
    escape = _only_escape(state)
    torch.save(state, tmp_path / "best.pt")
    arguments = ["predict", "best.pt", "--prompt", "The yard", "--max-tokens", "4", "--device", "cpu"]
    code, screen = in_terminal(arguments, environment(None, ""), cwd=tmp_path)
    assert code == 0, screen
    assert "\x1b" not in screen
    piped = run(tmp_path, *arguments[1:]).stdout
    assert piped == escape * 4 + "\n"


def _only_escape(state: dict[str, object]) -> str:
    """Changes the weights so that the model generates only the character ESC. Returns that character."""
    from tokenizers import Tokenizer

    tokenizer, weights = state["tokenizer"], state["model"]
    assert isinstance(tokenizer, dict) and isinstance(weights, dict)
    escape = Tokenizer.from_str(tokenizer["content"]).encode("\x1b").ids
    assert len(escape) == 1
    weights["lm_head.weight"].zero_()
    weights["lm_head.weight"][escape[0]] = 1
    weights["model.norm.weight"].zero_()
    weights["model.norm.weight"][0] = 100
    weights["model.embed_tokens.weight"][:, 0] = 100
    return "\x1b"


@each_row(
    ("arguments", "code", "message"),
    [
        (["best.pt"], 2, "give files to predict, or --text or --prompt"),
        (["best.pt", "--text", "a"], 2, "--text works only with text classifiers"),
        (
            ["best.pt", "--prompt", "a", "-o", "out"],
            2,
            "--output works only with segmentation models; this is a language model",
        ),
        (["best.pt", "--prompt", "a", "--max-tokens", "0"], 2, "must be at least 1; got '0'"),
        (["best.pt", "--prompt", "a", "--temperature", "nan"], 2, "must be at least 0.0; got 'nan'"),
        (["best.pt", "--prompt", "a", "--max-tokens", "256"], 1, "and 256 are to follow: the model has room for 256"),
        (["best.pt", "absent.txt"], 1, "absent.txt cannot be read"),
        (["best.pt", "--prompt", "a", "--base", "plain"], 1, "plain is another base"),
        (["whole.pt", "--prompt", "a", "--system", "b"], 2, "--system needs a chat template"),
        (["digits.pt", "a.png", "--prompt", "a"], 2, "--prompt works only with language models; this is a image"),
        (["films.pt", "--text", "a", "--temperature", "1"], 2, "--temperature works only with language models"),
        (["films.pt", "--text", "a", "--seed", "0"], 2, "--seed works only with language models"),
        (["films.pt", "--text", "a", "--base", "base"], 1, "a base is for an adapter of causal-lm"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(folder: Path, arguments: list[str], code: int, message: str) -> None:
    done = run(folder, *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert code == 2 or len(done.stderr.splitlines()) == 1


def test_an_adapter_is_exported_merged_or_alone(
    folder: Path, model: Generator, tmp_path: Path, approved: Approved
) -> None:
    shutil.copy(folder / "best.pt", tmp_path)
    base = str(folder / "base")
    done = run(tmp_path, "best.pt", "--to", "hf", "--base", base, command="export")
    assert (done.returncode, done.stdout) == (0, "best-hf\n"), done.stderr
    done = run(tmp_path, "best.pt", "--to", "hf", "--adapter", "--json", command="export")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["path"], told["difference"]) == ("best-adapter", 0)
    assert told["card"]["adapter"]["rank"] == model.card["adapter"]["rank"] == 4
    assert (tmp_path / "best-hf" / "model.safetensors").is_file()
    assert (tmp_path / "best-adapter" / "adapter_model.safetensors").is_file()
    refused = run(folder, "digits.pt", "--to", "safetensors", "--adapter", "-o", str(tmp_path), command="export")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == approved("stderr")


def test_a_jobs_adapter_is_downloaded_and_its_base_is_given(
    folder: Path, model: Generator, tmp_path: Path, server: FakeServer
) -> None:
    serve(server, (folder / "best.pt").read_bytes())
    server.on(JOB, job(trainer="causal-lm"))
    env = environment(server.url, TOKEN) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    asked = ["--prompt", "A", "--max-tokens", "3", "--device", "cpu", "--base", str(folder / "base")]
    done = run_in_process(["predict", "job_1/best", *asked], env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{model.generate('A', max_new_tokens=3)}\n"), done.stderr
