"""The OpenAPI document of the API. It is made when this module is imported, which takes a second."""

from typing import Any

from pydantic import SecretStr

from api.app import create_app
from api.settings import Settings

DOCUMENT: dict[str, Any] = create_app(Settings(token=SecretStr("for-the-document-only-0123456789"))).openapi()
