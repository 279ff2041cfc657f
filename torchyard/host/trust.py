"""Which certificates a connection to a service trusts: one that is known, or those of authorities."""

import hashlib
import os
import socket
import ssl
from urllib.parse import urlsplit

from torchyard.contract.errors import ConfigError, ServerUnreachable

_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
"""Variables that name a file with certificates: each is read by other programs."""
_TIMEOUT_S = 10.0


def context(certificate: str | None) -> ssl.SSLContext:
    """Returns what checks a service's certificate. `certificate`: the only one that it may have, as PEM, whatever host
    that names; None: one that an authority has given to the host.

    Raises ConfigError if the certificate, or a file that a variable names, cannot be read.
    """
    return _authorities() if certificate is None else _pinned(certificate)


def fingerprint(certificate: str) -> str:
    """Returns the SHA-256 of the certificate, which is PEM, in hex. Raises ValueError."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()


def shown(fingerprint: str) -> str:
    """Returns the fingerprint as browsers show it: pairs in capitals, with colons."""
    return ":".join(fingerprint[index : index + 2] for index in range(0, len(fingerprint), 2)).upper()


def fetch_certificate(url: str) -> str:
    """Returns the certificate that the server at the address shows, as PEM: it may be anybody's. Sends no request.

    Raises ServerUnreachable.
    """
    address, anybody = urlsplit(url), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    host = address.hostname or ""
    try:
        plain = socket.create_connection((host, address.port or 443), timeout=_TIMEOUT_S)
        with plain, anybody.wrap_socket(plain, server_hostname=host) as secured:
            found = secured.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise ServerUnreachable(f"{url} does not speak TLS as it should: {error.reason or error}") from None
    except (OSError, UnicodeError) as error:
        raise ServerUnreachable(f"{url} cannot be reached: {error}") from None
    assert found is not None  # a server has one
    return ssl.DER_cert_to_PEM_cert(found)


def _pinned(certificate: str) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname = False
    found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # who has signed it need not be known
    try:
        found.load_verify_locations(cadata=certificate)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the certificate of the service cannot be read: {error}") from None
    return found


def _authorities() -> ssl.SSLContext:
    """Returns a context that trusts the system's authorities, and the files that the variables name."""
    import httpx2  # ranks, which have none, connect to nothing

    # Of the variables that it would read itself it does not say which one names a file that is not there.
    found = httpx2.create_ssl_context(trust_env=False)
    found.load_default_certs()
    for name in _CERTIFICATES:
        if path := os.environ.get(name):
            try:
                found.load_verify_locations(cafile=path)
            except OSError as error:
                raise ConfigError(f"{name}: the certificates in {path} cannot be read: {error}") from None
    return found
