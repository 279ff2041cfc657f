"""Which certificates a connection to a service trusts: one that is known, or those of authorities."""

import os
import ssl

from torchyard.contract.errors import ConfigError

_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
"""Variables that name a file with certificates: each is read by other programs."""


def context(certificate: str | None) -> ssl.SSLContext:
    """Returns what checks a service's certificate. `certificate`: the only one that it may have, as PEM, whatever host
    that names; None: one that an authority has given to the host.

    Raises ConfigError if the certificate, or a file that a variable names, cannot be read.
    """
    return _authorities() if certificate is None else _pinned(certificate)


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
    """Returns what trusts the authorities of the system, and those that the user's variables name for any program."""
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
