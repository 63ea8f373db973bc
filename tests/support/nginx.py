"""A real nginx in front of a server, with lines of the documentation in its configuration."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

#: Debian has it where users who are not root do not look.
PROGRAM = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

_CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""


@contextmanager
def proxying(folder: Path, location: str) -> Iterator[str]:
    """Run nginx with these lines of a server until the end of the block; gives its address.

    Skips where none is installed; in CI that is a failure.
    """
    if PROGRAM is None:
        message = "no nginx is installed: apt-get install nginx-light"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    folder.mkdir()
    file = folder / "nginx.conf"
    # Another program may take the port that was free; then nginx ends, and another port is tried.
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        file.write_text(_CONFIGURATION.format(folder=folder, port=port, location=location))
        command = [PROGRAM, "-p", str(folder), "-e", "stderr", "-c", str(file)]
        with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
            try:
                if _answers(process, port):
                    yield f"http://127.0.0.1:{port}"
                    return
            finally:
                process.terminate()
    pytest.fail(f"nginx does not start: {(folder / 'log').read_text()}")


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until it listens; False when it has ended instead."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 10):
            return True
        time.sleep(0.02)
    return False
