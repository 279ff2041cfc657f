"""Settings that every program has: where the data is. Read from `TORCHYARD_*` variables; defaults suit one laptop."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from torchyard.contract.attempts.idleness import long_enough
from torchyard.contract.bundles.names import MAX_BUNDLE_BYTES, MAX_BUNDLE_FILES
from torchyard.contract.errors import ConfigError
from torchyard.contract.notifications import web_address
from torchyard.contract.spec.maximums import Maximums
from torchyard.contract.wire.findings import field_errors
from torchyard.contract.wire.units import LONGEST_STOP_GRACE, above_zero, parse_duration
from torchyard.host.datadir import redis_url

_PREFIX = "TORCHYARD_"
_SQLITE = "sqlite:///"


def _absolute_url(url: str) -> str:
    """Returns the address with the path of a SQLite file made absolute."""
    path = url.removeprefix(_SQLITE)
    named = url.startswith(_SQLITE) and path and not path.startswith(("/", ":", "file:"))
    return f"{_SQLITE}{Path(path).absolute()}" if named else url


AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]
"""A program works in another folder, once it has read its settings."""

Period = Annotated[timedelta, BeforeValidator(parse_duration), AfterValidator(above_zero)]
"""A duration such as `10m`."""


def _idle_timeout(value: Any) -> timedelta | None:
    return None if value in {None, ""} else parse_duration(value)


IdleTimeout = Annotated[timedelta | None, BeforeValidator(_idle_timeout), AfterValidator(long_enough)]
"""A duration. Empty: no limit."""


def _public_url(value: str) -> str:
    if value:
        web_address.parse(value)
    return value.rstrip("/")


class PublicAddress(BaseModel):
    """Where the service is reached."""

    model_config = ConfigDict(frozen=True)

    public_url: Annotated[str, AfterValidator(_public_url)] = ""
    """The address of the service as users and machines reach it. Empty: messages have no links."""


class Settings(BaseSettings):
    """Reads the environment when it is created. Raises pydantic.ValidationError; programs use `load`."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True)

    data_dir: Annotated[AbsolutePath, Field(validate_default=True)] = Path(".torchyard")
    database_url: Annotated[str, AfterValidator(_absolute_url)] = ""
    """Empty means SQLite in the data directory."""
    redis_url: str = ""
    """Empty means the Redis that `torchyard up` runs in the data directory."""
    secret_key: SecretStr = SecretStr("")
    """Keys of the users' secrets, separated by `,`. Empty means the file `secret.key` in the data directory."""

    max_bundle_bytes: Annotated[int, Field(ge=1024)] = MAX_BUNDLE_BYTES
    """Bytes of one bundle."""
    max_bundle_files: Annotated[int, Field(ge=1)] = MAX_BUNDLE_FILES
    """Files of one bundle."""

    max_stop_grace: Period = LONGEST_STOP_GRACE
    """The longest `stop_grace`: longer ones are refused, and cut in jobs that were submitted before."""
    max_idle_timeout: IdleTimeout = None
    """The longest `idle_timeout`, likewise."""

    @classmethod
    def load(cls) -> Self:
        """Reads the environment. Raises ConfigError, which names each invalid variable."""
        try:
            return cls()
        except ValidationError as error:
            faults = [f"{_PREFIX}{item.field.upper()}: {item.message}" for item in field_errors(error, cls)]
            raise ConfigError("; ".join(faults)) from None

    @property
    def maximums(self) -> Maximums:
        """What a job may ask for at most."""
        return Maximums(stop_grace=self.max_stop_grace, idle_timeout=self.max_idle_timeout)

    @property
    def root(self) -> Path:
        return self.data_dir

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.root / 'torchyard.db'}"

    @property
    def redis(self) -> str:
        """Raises ConfigError if the password in the data directory cannot be read."""
        return self.redis_url or redis_url(self.root / "redis")

    @property
    def secret_key_file(self) -> Path:
        return self.root / "secret.key"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"
