"""The files that ssh reads of a job: the key of this user, and that of the job's server."""

from dataclasses import dataclass
from pathlib import Path
import re
import subprocess
import tempfile

from torchyard.client.logins import login_file
from torchyard.contract.errors import ConfigError
from torchyard.host.privatefile import write_private

_PUBLIC = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{1,200}")


def folder() -> Path:
    """Returns where the keys are. Only their user can read it."""
    return login_file().parent / "ssh"


@dataclass(frozen=True)
class Keys:
    """The SSH keys for one job. `host` is a name such as `digits.torchyard`, without a slash: files are named by it."""

    host: str

    def own_key(self) -> str:
        """Returns this user's public key for the job, which is made when it is first asked for. Raises ConfigError."""
        path = folder() / self.host
        if not path.exists():
            _make(path)
        try:
            kind, key, *_ = path.with_name(f"{path.name}.pub").read_text(encoding="ascii").split()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the key {path}.pub cannot be read: {error}. Remove {path}, and it is made again"
            ) from None
        return f"{kind} {key}"

    def host_key(self) -> str | None:
        """Returns the key of the job's server, None if it is not known."""
        try:
            return self._known().read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None

    def know(self, line: str) -> bool:
        """Keeps the key that the job's server has told. Returns whether it is one. Raises OSError."""
        if _PUBLIC.fullmatch(line) is None:
            return False
        if self.host_key() != line:
            write_private(self._known(), line + "\n")
        return True

    def _known(self) -> Path:
        return folder() / f"{self.host}.known"


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        new = Path(made, "key")
        try:
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", new],  # noqa: S607 where it is, only PATH knows
                check=True,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise ConfigError(f"no key can be made with ssh-keygen: {error}") from None
        new.with_name("key.pub").replace(path.with_name(f"{path.name}.pub"))
        new.replace(path)
