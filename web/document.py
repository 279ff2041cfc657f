"""Prints the service's OpenAPI document, from which the page's types are generated."""

import json
import sys

from pydantic import SecretStr

from api.app import create_app
from api.settings import Settings

json.dump(create_app(Settings(token=SecretStr("for-the-document-only-0123456789"))).openapi(), sys.stdout)
