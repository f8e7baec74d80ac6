"""Object stores on 127.0.0.1, each in its own process: moto's S3 and a Google one.

    python -m tests.kit.object_stores       runs the S3 server and prints its port

They keep objects in memory. `S3Server.fail_after` makes the server answer 503 after a
number of requests, until `heal`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import urllib.request

from tests.kit.ports import PortBlock
from tests.kit.waiting import wait_until

#: Any keys will do: the server does not check them unless it is configured to.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    # Configuration and credentials of this machine must not be used.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


class S3Server:
    """A running S3 server and the commands for it. Made by `s3_server`."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.endpoint = f"127.0.0.1:{port}"

    def url(self, place: str) -> str:
        """Return the URL of `place` (a bucket and a path), as users write it."""
        return f"s3://{place}?endpoint_override={self.endpoint}&scheme=http"

    def make_bucket(self, name: str) -> None:
        self._call("PUT", f"/{name}")

    def fail_after(self, requests: int) -> None:
        """Serve the next `requests` requests, and answer all later ones with 503."""
        self._call("GET", f"/kit/fail/{requests}")

    def heal(self) -> None:
        self._call("GET", "/kit/heal")

    def _call(self, method: str, path: str) -> None:
        request = urllib.request.Request(
            f"http://{self.endpoint}{path}",
            method=method,
            headers={
                "Authorization": "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/"
                "aws4_request, SignedHeaders=host, Signature=0"
            },
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200


@contextlib.contextmanager
def s3_server(**env):
    """Run an S3 server during the block."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.kit.object_stores"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **env},
    )
    assert process.stdout is not None
    try:
        yield S3Server(process, int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def google_server(bucket):
    """Run gcp-storage-emulator during the block, and yield its HOST:PORT."""
    block = PortBlock()
    port = block.first
    process = subprocess.Popen(
        [
            sys.executable, "-W", "ignore", "-m", "gcp_storage_emulator", "start",
            "--host=127.0.0.1", f"--port={port}", "--in-memory",
            f"--default-bucket={bucket}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: _listens(port), "Google's store listens")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        block.close()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


class Gate:
    """A WSGI wrapper of moto's server: it injects faults and corrects one answer."""

    def __init__(self, app) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._left: int | None = None

    def __call__(self, environ, start_response):
        path = environ["PATH_INFO"]
        if path.startswith("/kit/"):
            with self._lock:
                *_, word = path.split("/")
                self._left = None if word == "heal" else int(word)
            start_response("200 OK", [])
            return [b""]
        with self._lock:
            fails = self._left == 0
            self._left = self._left - 1 if self._left else self._left
        if fails:
            start_response("503 Service Unavailable", [])
            return [b"<Error><Code>ServiceUnavailable</Code></Error>"]
        if environ["REQUEST_METHOD"] != "POST":
            return self._app(environ, start_response)
        return self._post(environ, start_response)

    def _post(self, environ, start_response):
        """Rename the element that ends an upload as it is named in Amazon's answer."""
        head = []

        def start(status, headers, exc_info=None):
            head.append((status, headers))

        chunks = self._app(environ, start)
        body = b"".join(chunks).replace(
            b"CompleteMultipartUploadResponse", b"CompleteMultipartUploadResult"
        )
        [(status, headers)] = head
        kept = [(n, v) for n, v in headers if n.lower() != "content-length"]
        start_response(status, [*kept, ("Content-Length", str(len(body)))])
        return [body]


def main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = Gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
