"""The settings of every program: `TORCHYARD_*` variables, with defaults for one laptop."""

from functools import cached_property
import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read from the environment when it is made. Raises pydantic.ValidationError."""

    model_config = SettingsConfigDict(env_prefix="TORCHYARD_", frozen=True)

    data_dir: Path = Path(".torchyard")
    database_url: str = ""
    """Empty: SQLite in the data directory."""
    redis_url: str = ""
    """Empty: the unix socket in the data directory."""
    token: SecretStr | None = None
    """The admin token that the API accepts."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    cpu_slots: Annotated[int, Field(ge=0, le=4096)] | None = None
    allow_paths: str = ""
    """Folders below which a job may name `file://` data and code, separated by `:`."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 1_048_576

    @cached_property
    def root(self) -> Path:
        return self.data_dir.absolute()

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.root / 'torchyard.db'}"

    @property
    def redis(self) -> str:
        return self.redis_url or f"unix://{self.root / 'redis' / 'redis.sock'}"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def allowed(self) -> tuple[Path, ...]:
        return tuple(Path(part) for part in self.allow_paths.split(os.pathsep) if part)
