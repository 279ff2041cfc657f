"""A full disk, told from other trouble."""

import errno
from pathlib import Path

import pytest

from tests.approved import Approved
from tests.disks import mounted
from torchyard.host.disk import full_disk_error, probe_full_disk, require_free_space, retry_while_unavailable

FULL = OSError(errno.ENOSPC, "No space left on device")


def raised(
    error: BaseException, *, cause: BaseException | None = None, after: BaseException | None = None
) -> Exception:
    try:
        try:
            if after is not None:
                raise after
        finally:
            if cause is not None:
                raise error from cause
            raise error
    except Exception as found:  # noqa: BLE001 whatever it is
        return found


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (FULL, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (ValueError("No space left on device"), False),
        (raised(RuntimeError("unexpected pos 64 vs 0"), after=FULL), True),
        (raised(RuntimeError("the model was not exported"), cause=FULL), True),
        (raised(RuntimeError("another"), cause=ValueError(), after=FULL), False),
    ],
)
def test_a_full_disk_is_found_behind_what_it_brings_about(error: BaseException, found: bool) -> None:
    assert (full_disk_error(error) is not None) is found


def test_a_disk_is_full_where_it_takes_no_small_file(tmp_path: Path, approved: Approved) -> None:
    assert probe_full_disk(tmp_path) is None
    assert probe_full_disk(tmp_path / "absent") is None
    require_free_space(tmp_path, 1)
    with mounted(tmp_path, kibibytes=128):
        (tmp_path / "ballast").write_bytes(bytes(100 * 1024))
        found = probe_full_disk(tmp_path)
        assert found is not None
        assert found.errno == errno.ENOSPC
        assert [path.name for path in tmp_path.iterdir()] == ["ballast"]
        with pytest.raises(OSError) as raised:
            require_free_space(tmp_path, 100 * 1024)
        assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_retrying_ends_with_a_result_another_error_or_the_time() -> None:
    answers: list[OSError | str] = [FULL, FULL, "done"]
    heard: list[OSError] = []

    def work() -> str:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert retry_while_unavailable(work, seconds=30, on_error=heard.append, pause_s=0) == "done"
    assert heard == [FULL, FULL]
    for error, seconds in ((OSError(errno.EIO, "Input/output error"), 30), (FULL, 0)):
        answers = [error, "done"]
        with pytest.raises(OSError, match=error.strerror):
            retry_while_unavailable(work, seconds=seconds, on_error=heard.append, pause_s=0)
    assert len(heard) == 2
