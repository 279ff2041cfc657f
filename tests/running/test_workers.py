"""What pytest reports of tests that workers run."""

import os
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from tests import forked, forks
from worker.host.proctable import read_stat

forks.preload("pytest", "tests.running.plugin", "pytest_timeout")

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
OPTIONS = ("-p", "tests.running.plugin", "-p", "no:cacheprovider", "-W", "error", "--strict-markers")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, *arguments: str, **files: str) -> pytest.RunResult:
    """Runs pytest on files in a process of its own, a fork of one that has imported the plugin."""
    if files:
        pytester.makepyfile(**files)
    known = ("-W", "ignore::pytest.PytestAssertRewriteWarning", f"--basetemp={pytester.path / 'temporary'}")
    done = forked.run("pytest", *OPTIONS, *arguments, *known, env=os.environ, cwd=pytester.path)
    return pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), duration=0.0)


def test_outcomes_output_warnings_and_durations_of_workers_are_reported(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        "-n2",
        "-rs",
        "--durations=1",
        "--durations-min=0",
        "-Wdefault::UserWarning",
        test_one="""
            import os, warnings, pytest
            def test_passes(): warnings.warn("take care")
            def test_fails():
                print("what it wrote")
                os.system("echo what its child wrote")
                assert [1, 2] == [1, 3]
            @pytest.mark.parametrize("value", [1, 2])
            def test_is_skipped(value): pytest.skip("not here")
        """,
        test_two="""
            import pytest
            @pytest.fixture
            def broken():
                yield
                raise ValueError("torn down")
            def test_passes(broken): pass
            @pytest.mark.xfail
            def test_is_known(): raise ValueError
        """,
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, failed=1, errors=1, skipped=2, xfailed=1, warnings=1)
    result.stdout.fnmatch_lines(["*At index 1 diff: 2 != 3*", "what it wrote", "what its child wrote"])
    result.stdout.fnmatch_lines(["*UserWarning: take care", "*slowest 1 durations*", "SKIPPED [[]2[]] *not here"])
    assert "1 failed, 2 passed, 2 skipped" in result.stdout.lines[-1]


def test_each_worker_sets_up_what_its_tests_share_and_tears_it_down_once(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import os, pytest
        from pathlib import Path
        LOG = Path(__file__).with_name("log").open("ab", buffering=0)
        def log(text): LOG.write(f"{text} {os.getpid()}\\n".encode())
        @pytest.fixture(scope="session", autouse=True)
        def shared(tmp_path_factory):
            assert tmp_path_factory.getbasetemp().name.startswith("gw")
            log("session begins"); yield; log("session ends")
        @pytest.fixture(scope="module", autouse=True)
        def own(request):
            log(f"{request.module.__name__} begins"); yield; log(f"{request.module.__name__} ends")
    """)
    files = {f"test_{name}": "def test_1(tmp_path): pass\ndef test_2(tmp_path): pass" for name in "abcd"}
    result = run(pytester, "-n2", **files)
    result.assert_outcomes(passed=8)
    lines = [line.rpartition(" ") for line in Path("log").read_text().splitlines()]
    workers = {pid for _, _, pid in lines}
    assert len(workers) <= 2
    assert str(os.getpid()) not in workers
    begun: list[str] = []
    for worker in workers:
        said = [text for text, _, pid in lines if pid == worker]
        assert (said[0], said[-1]) == ("session begins", "session ends")
        modules = [text.split()[0] for text in said[1:-1:2]]
        assert said[1:-1] == [f"{name} {what}" for name in modules for what in ("begins", "ends")]
        begun += modules
    assert sorted(begun) == ["test_a", "test_b", "test_c", "test_d"]


def test_a_worker_that_ends_fails_its_test_and_the_others_run(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        "-n1",
        test_it="""
            import os, signal
            def test_1(): pass
            def test_2(): os.kill(os.getpid(), signal.SIGKILL)
            def test_3(): os._exit(0)
            def test_4(): pass
        """,
    )
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*test_2*", "gw0, *ended by SIGKILL", "*test_3*", "gw1, *exited with 0"])


@pytest.mark.thorough
def test_an_error_in_the_teardown_of_what_is_shared_is_the_last_tests(pytester: pytest.Pytester) -> None:
    code = """
        import pytest
        @pytest.fixture(scope="session")
        def shared():
            yield
            raise ValueError("the server did not end")
        def test_it(shared): pass
    """
    result = run(pytester, "-n2", test_it=code)
    result.assert_outcomes(passed=1, errors=1)


@pytest.mark.thorough
def test_it_stops_after_the_first_failure(pytester: pytest.Pytester) -> None:
    code = "def test_1(): pass\ndef test_2(): assert False\ndef test_3(): pass"
    result = run(pytester, "-n1", "-x", test_it=code, test_other=code)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*stopping after 1 failures*"])


def test_a_test_that_hangs_is_ended_in_its_worker(pytester: pytest.Pytester) -> None:
    code = "import signal\ndef test_1():\n    while True: signal.pause()\ndef test_2(): pass"
    result = run(pytester, "-n1", "-ppytest_timeout", "--timeout=0.2", test_it=code)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Timeout*0.2*"])


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.thorough), 2])
def test_where_there_is_no_test_or_no_test_can_be_collected_pytest_says_so(
    pytester: pytest.Pytester, workers: int
) -> None:
    assert run(pytester, f"-n{workers}", test_it="").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    broken = run(pytester, f"-n{workers}", test_it="import missing_module", test_other="def test_it(): pass")
    assert broken.ret == pytest.ExitCode.INTERRUPTED
    broken.stdout.fnmatch_lines(["*1 error during collection*"])


@pytest.mark.parametrize("to_all", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_ctrl_c_ends_the_workers_and_tears_down(pytester: pytest.Pytester, to_all: bool) -> None:
    """A terminal sends it to all processes. One sent to pytest alone reaches the workers too."""
    pytester.makepyfile(
        test_it="""
            import os, signal, pytest
            from pathlib import Path
            @pytest.fixture(scope="session", autouse=True)
            def shared():
                yield
                Path("ended").touch()
            def test_it():
                os.write(int(os.environ["TOLD"]), str(os.getpid()).encode())
                while True: signal.pause()
        """
    )
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS, "-n1"],
        stdout=subprocess.PIPE,
        env={**os.environ, "TOLD": str(writer)},
        pass_fds=[writer],
        process_group=0,
        text=True,
    ) as process:
        os.close(writer)
        worker = os.read(reader, 100).decode()
        (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    os.close(reader)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "KeyboardInterrupt" in output
    assert Path("ended").exists()
    assert not Path("/proc", worker).exists()


def test_what_a_test_leaves_running_is_told_by_its_name_and_ended(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.running import remains\nremains.ENDING *= 0")
    result = run(
        pytester,
        "-n1",
        test_it="""
            import os, subprocess
            def start(**kept):
                program = "sleep 1000 >/dev/null & echo $!"
                return subprocess.check_output(["setsid", "sh", "-c", program], **kept, text=True, timeout=60)
            def test_leaves(pytestconfig):
                (pytestconfig.rootpath / "left").write_text(start())
            def test_leaves_nothing(): pass
            def test_leaves_one_that_inherits_nothing(tmp_path, pytestconfig):
                (pytestconfig.rootpath / "alone").write_text(start(cwd=tmp_path, env={"PATH": os.environ["PATH"]}))
        """,
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines_random(
        [
            "test_it.py::test_leaves (call) left process * running: sleep 1000",
            "*/test_leaves_one_that_inherits*: sleep*",
        ]
    )
    assert str(result.stdout).count("sleep 1000") == 2
    stats = [read_stat(int(Path(name).read_text())) for name in ("left", "alone")]
    assert not [stat for stat in stats if stat is not None and stat.running]


def test_a_run_of_all_quick_tests_fails_by_a_skip_that_is_not_listed(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntestpaths = .\naddopts = -m 'not thorough and not slurm'\nmarkers =\n thorough\n slurm")
    code = "import pytest\ndef test_it(): pytest.skip('for no good reason')"
    whole = run(pytester, "-n1", test_it=code)
    assert whole.ret == pytest.ExitCode.TESTS_FAILED
    whole.stdout.fnmatch_lines(["FAILED, though all tests passed: test_it.py::test_it was skipped: for no good reason"])
    assert run(pytester, "-n1", "-k", "it").ret == pytest.ExitCode.OK
    assert run(pytester, "-n1", "test_it.py").ret == pytest.ExitCode.OK


@pytest.mark.thorough
def test_each_test_runs_in_one_shard(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.parametrize('value', range(20))\ndef test_it(value): pass")
    passed = [run(pytester, "-n0", "--shard", f"{number}/2").parseoutcomes()["passed"] for number in (1, 2)]
    assert sum(passed) == 20
    assert run(pytester, "--shard", "3/2").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.thorough
def test_children_of_tests_begin_with_the_default_handlers_in_the_background_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
            import signal, subprocess, sys, pytest
            def test_it():
                program = "from signal import *; print(getsignal(SIGINT) == default_int_handler, getsignal(SIGQUIT))"
                done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
                assert done.stdout.split() == ["True", "0"]
        """
    )
    for workers in ("-n0", "-n1"):
        program = [sys.executable, "-m", "pytest", *OPTIONS, workers]
        done = subprocess.run(["sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh", *program], check=False)
        assert done.returncode == 0
