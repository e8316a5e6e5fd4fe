"""A command reaches the hosts of its list through the proxy, and nothing else of the machine or beyond."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from git_repository import make_repository
from keeper_places import place, run
from remit.contract import NodeFailure, PrepareRequest
from service_kit import FILES, node_of


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.path} for {self.headers['Host']} {self.headers.get('Proxy-Authorization')}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        body = f"{len(self.rfile.read(size))} bytes\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - whatever it is told
        """Says nothing."""


@pytest.fixture
def site() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


ONE_LINE = "import urllib.request as r, sys; print(r.urlopen(sys.argv[1], timeout=20).read().decode())"


async def test_a_listed_host_is_reached_and_another_is_refused(tmp_path: Path, site: int) -> None:
    """Plain HTTP and CONNECT; the refusal says what is in the list, to the program and to the model."""
    listed = (f"127.0.0.1:{site}",)
    unlisted = f"isn't among the hosts of this workspace ({listed[0]})"
    async with place(tmp_path) as here:
        # 127.0.0.1 is in NO_PROXY, so that a program's own servers work; ask the proxy itself.
        checkout = await here.open()
        lines = [
            f"http://127.0.0.1:{site}/a?b=c",
            f"http://127.0.0.1:{site + 1}/",
            f"http://localhost:{site}/",
            "http://169.254.169.254/latest/meta-data",
        ]
        script = f"""
import socket, base64
def ask(head):
    s = socket.create_connection(("127.0.0.1", 7431), timeout=20)
    s.sendall(head.encode("latin-1"))
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    return data.decode("latin-1")
for url in {lines!r}:
    said = ask(f"GET {{url}} HTTP/1.1\\r\\nHost: evil.example\\r\\nProxy-Authorization: x\\r\\n\\r\\n")
    print(said.split("\\r\\n")[0], "|", said.split("\\r\\n\\r\\n")[1].strip())
tunnel = ask("CONNECT 127.0.0.1:{site} HTTP/1.1\\r\\n\\r\\nGET /t HTTP/1.0\\r\\nHost: t\\r\\n\\r\\n")
print(tunnel.split("\\r\\n")[0], "|", tunnel.strip().splitlines()[-1])
print(ask("GET / HTTP/1.1\\r\\n\\r\\n").split("\\r\\n")[0])
print(ask("CONNECT 127.0.0.1:1 HTTP/1.1\\r\\n\\r\\n").split("\\r\\n")[0])
post = "POST http://127.0.0.1:{site}/p HTTP/1.1\\r\\nContent-Length: 300000\\r\\n\\r\\n" + "x" * 300000
print(ask(post).strip().splitlines()[-1])
"""
        result = await run(checkout, 'python3 -I -c "$S"', network=listed, environment={"S": script})
        assert result.text.splitlines() == [
            f"HTTP/1.0 200 OK | /a?b=c for 127.0.0.1:{site} None",
            f"HTTP/1.1 403 Forbidden | remit: 127.0.0.1:{site + 1} {unlisted}",
            f"HTTP/1.1 403 Forbidden | remit: localhost:{site} {unlisted}",
            f"HTTP/1.1 403 Forbidden | remit: 169.254.169.254:80 {unlisted}",
            "HTTP/1.1 200 Connection established | /t for t None",
            "HTTP/1.1 400 Bad Request",
            "HTTP/1.1 403 Forbidden",
            "300000 bytes",
        ], result.text
        assert [line.partition(" ")[0] for line in result.denied] == [
            f"127.0.0.1:{site + 1}",
            f"localhost:{site}",
            "169.254.169.254:80",
            "127.0.0.1:1",
        ]


async def test_nothing_but_the_proxy_is_there(tmp_path: Path, site: int) -> None:
    """R2: no direct connection, no name service, no other socket; the environment leads to the proxy."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    udp.settimeout(0.2)
    script = f"""
import socket
for port in ({site}, 53, 22):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2); print("REACHED", port)
    except OSError: print("nothing at", port)
try: socket.create_connection(("93.184.216.34", 80), timeout=2); print("REACHED")
except OSError as error: print(error.strerror)
try: socket.getaddrinfo("example.com", 80); print("REACHED")
except OSError: print("no names")
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp.getsockname()[1]}))
"""
    async with place(tmp_path) as here:
        result = await run(
            await here.open(),
            'python3 -I -c "$S"; echo $https_proxy $NO_PROXY',
            network=(f"127.0.0.1:{site + 1}", f"192.0.2.1:{site}"),
            environment={"S": script},
        )
    assert result.text.splitlines() == [
        f"nothing at {site}",
        "nothing at 53",
        "nothing at 22",
        "Network is unreachable",
        "no names",
        "http://127.0.0.1:7431 localhost,127.0.0.1,::1",
    ]
    with pytest.raises(TimeoutError):
        udp.recv(10)
    udp.close()


@pytest.mark.parametrize("listed", ["localhost", "127.0.0.1"])
async def test_a_listed_port_of_localhost_is_reached_as_it_is(tmp_path: Path, site: int, listed: str) -> None:
    """No program asks a proxy for `localhost`: a port that is listed answers there, in any protocol."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = unused.getsockname()[1]
    script = f"""
import socket, urllib.request
print(urllib.request.urlopen("http://{listed}:{site}/near", timeout=20).read().decode().strip())
with socket.create_connection(("{listed}", {site}), timeout=20) as plain:
    plain.sendall(b"GET /raw HTTP/1.0\\r\\nHost: raw\\r\\n\\r\\n")
    print(b"".join(iter(lambda: plain.recv(65536), b"")).decode().splitlines()[-1])
with socket.create_connection(("{listed}", {closed}), timeout=20) as nobody:
    print(nobody.recv(10))
"""
    network = (f"{listed}:{site}", f"{listed}:{closed}")
    async with place(tmp_path) as here:
        result = await run(
            await here.open(), 'python3 -I -c "$S"', network=network, environment={"S": script}
        )
    assert result.text.splitlines() == [f"/near for {listed}:{site} None", "/raw for raw None", "b''"]
    (denied,) = result.denied
    assert denied.startswith(f"localhost:{closed} of this machine can't be reached: ")


async def test_the_proxy_ends_with_its_command(tmp_path: Path, site: int) -> None:
    """Also when the command is stopped in the middle of a transfer; nothing is left of either."""
    async with place(tmp_path) as here:
        checkout = await here.open()
        hold = (
            "import socket, time; s = socket.create_connection(('127.0.0.1', 7431)); "
            "s.send(b'CONNECT '); time.sleep(600)"
        )
        result = await run(
            checkout, f'python3 -I -c "{hold}"', network=(f"127.0.0.1:{site}",), timeout_ms=1_500
        )
        assert result.status == "timed_out"
        children = Path(f"/proc/{checkout.pid}/task/{checkout.pid}/children").read_text().split()
        assert children == []


async def test_a_programs_own_server_works_beside_the_proxy(tmp_path: Path, site: int) -> None:
    """Tests that start a server on loopback reach it: nothing nearby goes through the proxy."""
    script = """
import threading, urllib.request, http.server
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.handle_request).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/tracked.txt").read())
"""
    async with place(tmp_path) as here:
        result = await run(
            await here.open(), 'python3 -I -c "$S"', network=(f"127.0.0.1:{site}",), environment={"S": script}
        )
    assert "b'original\\n'" in result.text


async def test_a_model_is_told_what_it_cant_reach(tmp_path: Path, site: int) -> None:
    """The denial stands at the end of the call's result; the tool says what may be reached."""
    root = make_repository(tmp_path / "repo", FILES)
    async with node_of(tmp_path, root, network=[f"localhost:{site}"], checks=[]) as node:
        prepared = await node.prepare()
        shell = next(tool for tool in prepared.tools if tool.name == "run_shell")
        assert f"only localhost:{site}" in shell.description
        assert f"only localhost:{site}" in prepared.brief
        await node.open()
        url = "http://example.com/x"
        answer = await node.tool("run_shell", command=f"python3 -I -c '{ONE_LINE}' {url}")
        assert f"[network: example.com:80 isn't among the hosts of this workspace (localhost:{site})]" in (
            answer.content
        )
        url = f"http://localhost:{site}/y"
        answer = await node.tool("run_shell", command=f"python3 -I -c '{ONE_LINE}' {url}")
        assert "/y for" in answer.content, answer.content
        await node.cleanup()
    async with node_of(tmp_path, root, checks=[]) as node:
        await node.open("run_2")
        url = "http://example.com/x"
        answer = await node.tool("run_shell", "run_2", command=f"python3 -I -c '{ONE_LINE}' {url}; exit 1")
        assert "the network is off in this workspace" in answer.content
        await node.cleanup("run_2")


async def test_what_is_missing_is_named_before_anything_is_spent(tmp_path: Path) -> None:
    """A command that isn't there and a host that nobody knows are notes of the preparation."""
    root = make_repository(tmp_path / "repo", FILES)
    commands = [{"id": "lint", "executable": "no-such-linter"}]
    hosts = ["localhost:1", "no-such-host.invalid:443", "*.invalid:443", "192.0.2.1:443"]
    async with node_of(tmp_path, root, network=hosts, commands=commands, checks=[]) as node:
        prepared = await node.prepare()
    assert [note for note in prepared.notes if "lint" in note or "host" in note] == [
        "the command lint can't be started: there is no no-such-linter in the sandbox",
        "the host no-such-host.invalid:443 can't be looked up; commands won't reach it",
    ]
    async with node_of(tmp_path, root, commands=commands, checks=["lint"]) as node:
        prepared = await node.prepare()
    (said,) = (note for note in prepared.notes if "lint" in note)
    assert said.startswith("the check lint can't be run: no-such-linter can't be started: it, or the interp")


async def test_a_list_needs_the_sandbox_that_can_hold_it(tmp_path: Path) -> None:
    """Where commands have the machine's network, a list would be a lie: refused before anything is spent."""
    root = make_repository(tmp_path / "repo", FILES)
    async with node_of(tmp_path, root, network=["example.com:443"], sandbox="external") as node:
        answer = await node.service.handle(PrepareRequest(run_id="run_1", workspace_ref="app"))
    assert isinstance(answer, NodeFailure)
    assert "network = [...] needs the sandbox bubblewrap" in answer.message
