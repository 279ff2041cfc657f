"""The variables of the worker that its operator gives to all jobs, such as those of a proxy, by an explicit list."""

from collections.abc import Mapping
import re

VARIABLE = "TORCHYARD_JOB_VARIABLES"
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
"""Variables that name a file with the certificates of authorities: each is read by other programs."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_PROXY = re.compile(r"(https?|ftp|all|no)_proxy", re.IGNORECASE)


def names_in(text: str) -> tuple[str, ...]:
    """Returns the names of a list, separated by `,`. Raises ValueError for what is no name."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not a name of a variable: write names, separated by `,`")
    return tuple(dict.fromkeys(names))


def given(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with their values, those of proxies in both cases: programs differ in which they read."""
    variables: dict[str, str] = {}
    for name in names_in(environ.get(VARIABLE, "")):
        spellings = (name, name.lower(), name.upper()) if _PROXY.fullmatch(name) else (name,)
        value = next((environ[each] for each in spellings if each in environ), None)
        if value is not None:
            variables |= {each: environ.get(each, value) for each in spellings}
    return variables
