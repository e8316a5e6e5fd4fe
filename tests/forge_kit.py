"""A forge on loopback: one repository over git's own HTTP, and merge requests, for who has the token."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from git_repository import git


@dataclass(slots=True)
class Forge:
    """What it has."""

    repository: Path
    token: str
    url: str = ""
    merge_requests: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def branches(self) -> list[str]:
        """Names of the branches."""
        return git(self.repository, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    def read(self, branch: str, path: str) -> str:
        """A file on a branch."""
        return git(self.repository, "show", f"{branch}:{path}")


@contextmanager
def forge(repository: Path, *, token: str) -> Generator[Forge]:
    """A bare repository that is served; who pushes must give the token as password."""
    found = Forge(repository, token)
    git(repository, "config", "http.receivepack", "true")

    class Handler(_Handler):
        forge = found

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, name="forge")
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


class _Handler(BaseHTTPRequestHandler):
    forge: ClassVar[Forge]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
        """Say nothing."""

    def do_GET(self) -> None:
        self._git(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if not self.path.startswith("/api/"):
            self._git(body)
        elif self.headers.get("PRIVATE-TOKEN") == self.forge.token and self.path.endswith("/merge_requests"):
            asked = parse_qs(body.decode(), keep_blank_values=True)
            self.forge.merge_requests.append({name: values[0] for name, values in asked.items()})
            self._answer(201, b"{}")
        else:
            self._answer(401, b"{}")

    def _git(self, body: bytes) -> None:
        credentials = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic "))
        if credentials.decode().partition(":")[2] != self.forge.token:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="forge"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, query = urlsplit(self.path).path, urlsplit(self.path).query
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            check=True,
            timeout=60,
            env={
                **os.environ,
                "GIT_PROJECT_ROOT": str(self.forge.repository.parent),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "REMOTE_USER": "ci",
            },
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        self.send_response(200)
        for line in head.decode().splitlines():
            name, _, value = line.partition(": ")
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
