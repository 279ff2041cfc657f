"""The files of a service's certificate: its own in the data directory, or those that its operator names."""

from dataclasses import dataclass
from pathlib import Path
import ssl

from torchyard.contract.errors import ConfigError


@dataclass(frozen=True)
class Tls:
    """The files of a certificate and its key, as PEM."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raises ConfigError if a server cannot use them."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else str(error)
            raise ConfigError(
                f"the certificate {self.certificate} with the key {self.key} cannot be used: {said}."
                " Both are PEM files, and the key has no password"
            ) from None

    def text(self) -> str:
        """Returns the certificate itself, without those that vouch for it. Raises ConfigError."""
        try:
            first, end, _ = self.certificate.read_text(encoding="ascii", errors="replace").partition(ssl.PEM_FOOTER)
        except OSError as error:
            raise ConfigError(f"the certificate {self.certificate} cannot be read: {error.strerror}") from None
        return first[first.find(ssl.PEM_HEADER) :] + end + "\n"


def own(data_dir: Path) -> Tls:
    """Returns where the service on the data directory keeps a certificate of its own."""
    return Tls(data_dir / "tls" / "certificate.pem", data_dir / "tls" / "key.pem")


def given(certificate: Path | None, key: Path | None) -> Tls | None:
    """Returns the files that the options name, None if they name none. Raises ConfigError if only one is named."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError(
            "a certificate needs its key: give both (--tls-cert and --tls-key, or"
            " TORCHYARD_TLS_CERTIFICATE and TORCHYARD_TLS_KEY)"
        )
    return Tls(certificate.absolute(), key.absolute())


def _no_password() -> str:
    raise ValueError("the key has a password")
