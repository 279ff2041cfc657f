"""Which certificates a connection to a service trusts: one that is known, or those of authorities."""

from base64 import b64encode
from contextlib import closing
import hashlib
from http.client import HTTPException, HTTPSConnection
import os
import ssl
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

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
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    proxy = proxy_of(url)
    by = "" if proxy is None else f" by the proxy {shown_proxy(proxy)}"
    try:
        with closing(connection(url, anybody)) as opened:
            opened.connect()
            found = opened.sock.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise ServerUnreachable(f"{url} does not speak TLS as it should{by}: {error.reason or error}") from None
    except (OSError, ValueError, HTTPException) as error:
        raise ServerUnreachable(f"{url} cannot be reached{by}: {error}") from None
    assert found is not None  # a server has one
    return ssl.DER_cert_to_PEM_cert(found)


def connection(url: str, context: ssl.SSLContext, *, timeout_s: float = _TIMEOUT_S) -> HTTPSConnection:
    """Returns a connection to a service, by its proxy if the environment names one. It is not open yet."""
    address, proxy = urlsplit(url), proxy_of(url)
    host, port = address.hostname or "", address.port or 443
    if proxy is None:
        return HTTPSConnection(host, port, timeout=timeout_s, context=context)
    known = urlsplit(proxy)
    made = HTTPSConnection(known.hostname or "", known.port or 80, timeout=timeout_s, context=context)
    user = f"{unquote(known.username)}:{unquote(known.password or '')}" if known.username else None
    credentials = {} if user is None else {"Proxy-Authorization": f"Basic {b64encode(user.encode()).decode()}"}
    made.set_tunnel(host, port, credentials)
    return made


def proxy_of(url: str) -> str | None:
    """Returns the address of the proxy by which this machine reaches the service; None: it needs none.

    `HTTPS_PROXY` names it, or `ALL_PROXY`, unless `NO_PROXY` has the host. No proxy reaches this machine's loopback.
    """
    host, proxies = urlsplit(url).hostname or "", getproxies()
    if is_local(url) or proxy_bypass(host):
        return None
    proxy = proxies.get("https") or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def is_local(url: str) -> bool:
    """Whether the service is on this machine's loopback."""
    return urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"}


def shown_proxy(proxy: str) -> str:
    """Returns the host and port of the proxy, without a password."""
    return urlsplit(proxy).netloc.rpartition("@")[2]


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
