"""Makes the certificate of a service that has no other. No authority vouches for it: clients know it."""

from datetime import UTC, datetime, timedelta
import ipaddress
import socket

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from api.settings import Settings
from torchyard.host import trust
from torchyard.host.privatefile import write_private
from torchyard.host.tls import Tls

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LIFE = timedelta(days=3650)
_SLACK = timedelta(days=2)
"""A machine whose clock is late trusts a new certificate, too."""


def ensure(files: Tls) -> None:
    """Makes a certificate and its key, unless they are there: they are kept, as clients know them. Raises OSError."""
    if files.certificate.exists() and files.key.exists():
        return
    files.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate, key = _make()
    write_private(files.key, key)
    write_private(files.certificate, certificate)


def pinned(settings: Settings) -> str | None:
    """Returns the fingerprint of the service's certificate, in hex, if clients are to know it; None if an authority has
    given it one, which it may renew, or a proxy speaks HTTPS for it. Raises ConfigError.
    """
    files = settings.tls_files
    if files is None:
        return None
    text = files.text()
    found = x509.load_pem_x509_certificate(text.encode())
    return trust.fingerprint(text) if found.issuer == found.subject else None


def outgoing_addresses() -> list[Address]:
    """Returns the addresses from which this host reaches others, that of IPv4 first. Nothing is sent."""
    found: list[Address] = []
    for family, other in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((other, 9))
                found.append(_address(probe.getsockname()[0]))
        except OSError:
            continue
    return found


def _make() -> tuple[str, str]:
    """Returns a new certificate for all names and addresses of this host, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    names, addresses = _names_and_addresses()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Torchyard on {names[0]}"[:64])])
    now = datetime.now(UTC)
    alternatives = [*map(x509.DNSName, names), *map(x509.IPAddress, addresses)]
    made = (
        x509.CertificateBuilder(issuer_name=subject, subject_name=subject, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


def _names_and_addresses() -> tuple[list[str], list[Address]]:
    """Returns the names of this host, and its addresses, as far as it knows them."""
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    addresses = {ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"), *outgoing_addresses()}
    addresses |= {_address(str(address[0])) for *_, address in found}
    names = dict.fromkeys(text for text in (name, socket.getfqdn(), "localhost") if _is_name(text))
    return [*names], sorted(addresses, key=lambda address: (address.version, int(address)))


def _address(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])


def _is_name(text: str) -> bool:
    return text.isascii() and text.replace("-", "").replace(".", "").isalnum() and len(text) <= 253
