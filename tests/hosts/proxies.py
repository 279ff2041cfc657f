"""A proxy that gathers answers before it passes them on, and ends what is silent for two seconds."""

from collections.abc import Generator
from contextlib import contextmanager
import os
import shutil
import subprocess

import pytest

from tests.e2e.service import until
from tests.hosts.service import LabService
from tests.servers import free_port
from torchyard.cli.up import address
from torchyard.host import tls

_CONFIGURATION = """
user root; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ }}
http {{
  access_log off; client_max_body_size 0;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen {address} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};
    location / {{
      proxy_pass {upstream}; proxy_http_version 1.1; proxy_set_header Host $http_host;
      proxy_buffering on; proxy_ignore_headers X-Accel-Buffering; proxy_read_timeout 2s;
    }}
  }}
}}
"""


@contextmanager
def buffering_proxy(service: LabService, host: str) -> Generator[str]:
    """The URL of an nginx with the certificate of the service, on that address. Skips the test where there is none."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    folder, files, listening = service.data.parent / "nginx", tls.own(service.data), f"{host}:{free_port()}"
    folder.mkdir()
    (folder / "nginx.conf").write_text(
        _CONFIGURATION.format(
            folder=folder,
            address=listening,
            certificate=files.certificate,
            key=files.key,
            upstream=service.url,
        )
    )
    with subprocess.Popen([program, "-p", str(folder), "-c", str(folder / "nginx.conf")]) as nginx:
        try:
            until(lambda: address.ready(f"https://{listening}", files.text()), what="nginx answers")
            yield f"https://{listening}"
        finally:
            nginx.terminate()
