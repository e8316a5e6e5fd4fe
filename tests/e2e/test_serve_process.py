"""`remit serve` as a process: ready, its first key, its lock, its signals, its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest

from door_kit import PLAN, REVIEW, REVIEWED, SLEEP, WORK, DoorWorld, frames_of

PROGRAM = (sys.executable, "-m", "remit.cli")
BODY = {"binding": "reviewed", "prompt": "Mend it."}


@pytest.fixture
def world(tmp_path: Path) -> DoorWorld:
    return DoorWorld(home=tmp_path, replies=REVIEWED)


@dataclass(slots=True, kw_only=True)
class Served:
    """A `remit serve` that is ready."""

    process: subprocess.Popen[str]
    url: str
    key: str

    def client(self) -> httpx2.AsyncClient:
        """A client with the first key."""
        return httpx2.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=30, trust_env=False
        )


def write_settings(world: DoorWorld) -> Path:
    """The world's settings as a file."""
    settings = world.settings()
    path = world.home / "remit.toml"
    lines: list[str] = []
    for name, table in settings["providers"].items():
        lines += [f"[providers.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    lines += ["[pools.default]", 'members = [{ model = "demo:m" }]']
    for name, table in settings["bindings"].items():
        lines += [f"[bindings.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    if settings["host"]:
        lines += ["[host]", *(f"{key} = {json.dumps(value)}" for key, value in settings["host"].items())]
    for workspace in settings["nodes"]["local"]["workspaces"]:
        lines += ["[[nodes.local.workspaces]]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in workspace.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def command(world: DoorWorld, *arguments: str) -> list[str]:
    """A `remit serve` on a free port."""
    config = write_settings(world)
    return [*PROGRAM, "serve", "--config", str(config), "--listen", "127.0.0.1:0", *arguments]


@contextmanager
def started(world: DoorWorld, arguments: Sequence[str]) -> Generator[subprocess.Popen[str]]:
    """A process, which is gone after the block."""
    process = subprocess.Popen(
        arguments,
        cwd=world.home,
        env=world.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


@asynccontextmanager
async def serving(world: DoorWorld, *arguments: str) -> AsyncGenerator[Served]:
    """A host that is ready."""
    with started(world, command(world, *arguments)) as process:
        assert process.stdout is not None
        url = (await asyncio.to_thread(process.stdout.readline)).strip()
        assert url.startswith("http://127.0.0.1:"), process.communicate(timeout=30)
        yield Served(process=process, url=url, key=(world.data / "api-key").read_text().strip())


async def exit_of(process: subprocess.Popen[str], *, within_s: float = 30) -> tuple[int, str]:
    """How a process ended, and what it said."""
    _, said = await asyncio.to_thread(process.communicate, None, within_s)
    return process.returncode, said


async def wait_for_tool(client: httpx2.AsyncClient, run_id: str) -> None:
    """Return once the run has a tool at work."""
    for _ in range(500):
        work = (await client.get(f"/api/v1/runs/{run_id}/work")).json()["data"]
        if any(entry["kind"] == "tool" for entry in work):
            return
        await asyncio.sleep(0.02)
    pytest.fail("no tool call was ever seen")


async def test_first_start_makes_a_key_for_its_owner_alone(world: DoorWorld) -> None:
    """R77: the first key lies in a file of mode 0600; the next start finds it and makes no other."""
    async with serving(world) as served, served.client() as client:
        path = world.data / "api-key"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        run = await client.post("/api/v1/runs", json=BODY, params={"wait_ms": 30_000})
        assert run.json()["status"] == "completed"
        served.process.send_signal(signal.SIGTERM)
        code, said = await exit_of(served.process)
        assert code == 0
        assert str(path) in said
        assert "sandbox bubblewrap" in said
        assert "binding reviewed" in said
        assert f"OpenAI's clients: {served.url}/v1; Anthropic's and browsers: {served.url}" in said
        assert served.key not in said
    async with serving(world) as again, again.client() as client:
        assert again.key == served.key
        names = [key["name"] for key in (await client.get("/api/v1/keys")).json()["data"]]
        assert names == ["first"]


async def test_term_drains_and_exits_0_with_open_streams(world: DoorWorld) -> None:
    """R62: a run, a queued one, three idle streams: told, cancelled at the deadline, stored, exit 0."""
    world.replies = (PLAN, SLEEP, WORK, REVIEW)
    world.host_table = {"max_running": 1}
    async with serving(world, "--drain", "1s") as served, served.client() as client:
        running = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        queued = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        await wait_for_tool(client, running)

        async def follow(run_id: str) -> str:
            return (await client.get(f"/api/v1/runs/{run_id}/events")).text

        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(follow(run_id)) for run_id in (running, running, queued)]
            await asyncio.sleep(0.3)
            begun = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            refused = await client.post("/api/v1/runs", json=BODY)
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            assert int(refused.headers["retry-after"]) > 0
            ready = await client.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "draining")
            assert (await client.get(f"/api/v1/runs/{running}")).status_code == 200
            code, _ = await exit_of(served.process)
        assert code == 0
        assert time.monotonic() - begun < 15
        for stream in streams:
            assert ": draining" in stream.result()
            assert frames_of(stream.result())[-1]["event"] == "run.cancelled"
            assert '"code":"drain"' in frames_of(stream.result())[-1]["data"]
    async with serving(world) as again, again.client() as client:
        for run_id in (running, queued):
            terminal = (await client.get(f"/api/v1/runs/{run_id}")).json()["terminal"]
            assert (terminal["kind"], terminal["code"]) == ("cancelled", "drain")


async def test_run_that_ends_in_time_ends_by_itself(world: DoorWorld) -> None:
    """R62: what ends before the drain's deadline ends as it would have."""
    short = {**SLEEP, "tool_calls": [{"name": "run_shell", "arguments": {"command": "sleep 1"}}]}
    world.replies = (PLAN, short, WORK, REVIEW)
    async with serving(world, "--drain", "30s") as served, served.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        await wait_for_tool(client, run_id)
        served.process.send_signal(signal.SIGINT)
        text = (await client.get(f"/api/v1/runs/{run_id}/events")).text
        assert frames_of(text)[-1]["event"] == "run.completed"
        code, _ = await exit_of(served.process)
        assert code == 0


async def test_second_signal_forces_the_end(world: DoorWorld) -> None:
    """R62: a second signal ends everything at once, tools included."""
    mark = "remit-test-" + os.urandom(6).hex()
    tool = {
        "stage": "work",
        "tool_calls": [{"name": "run_shell", "arguments": {"command": f"exec -a {mark} sleep 60"}}],
    }
    world.replies = (PLAN, tool, WORK, REVIEW)
    async with serving(world, "--drain", "60s") as served, served.client() as client:
        run_id = (await client.post("/api/v1/runs", json=BODY)).json()["id"]
        await wait_for_tool(client, run_id)
        served.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert served.process.poll() is None
        begun = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        code, _ = await exit_of(served.process)
        assert code != 0
        assert time.monotonic() - begun < 5
        async with asyncio.timeout(10):
            while _is_running(mark):
                await asyncio.sleep(0.05)


def _is_running(mark: str) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes().split(b"\0")[:1]:
                    return True
    return False


async def test_one_serve_a_data_folder(world: DoorWorld) -> None:
    """A second `remit serve` on the folder is refused in one sentence; the first goes on."""
    async with serving(world) as served, served.client() as client:
        second = await asyncio.to_thread(
            subprocess.run,
            command(world),
            cwd=world.home,
            env=world.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode == 2
        assert second.stderr.startswith("remit: another `remit serve` uses")
        assert second.stderr.count("\n") == 1
        assert (await client.get("/readyz")).status_code == 200


async def test_certificate_makes_it_tls(world: DoorWorld, tmp_path: Path) -> None:
    """R77: with a certificate others may reach the host: TLS alone, from 1.2 on, by its names alone."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, secret = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    world.host_table = {"tls_certificate": str(chain), "tls_key": str(secret), "allowed_hosts": ["127.0.0.1"]}
    with started(world, command(world, "--listen", "0.0.0.0:0")) as process:
        assert process.stdout is not None
        url = (await asyncio.to_thread(process.stdout.readline)).strip()
        assert url.startswith("https://127.0.0.1:"), process.communicate(timeout=30)
        trusting = ssl.create_default_context(cafile=str(chain))
        headers = {"Authorization": f"Bearer {(world.data / 'api-key').read_text().strip()}"}
        async with httpx2.AsyncClient(
            base_url=url, verify=trusting, headers=headers, trust_env=False
        ) as client:
            assert (await client.get("/api/v1/runs")).status_code == 200
            run = await client.post("/api/v1/runs", json=BODY, params={"wait_ms": 60_000}, timeout=90)
            assert run.json()["status"] == "completed"
            own = await client.post("/api/v1/runs?dry_run=1", json=BODY, headers={"Origin": url})
            assert own.status_code == 200
            in_the_clear = {"Origin": url.replace("https", "http")}
            assert (await client.post("/api/v1/runs", json=BODY, headers=in_the_clear)).status_code == 403
            other = {"Host": f"localhost:{httpx2.URL(url).port}"}
            assert (await client.get("/api/v1/runs", headers=other)).status_code == 421
        async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get("/healthz")
        async with httpx2.AsyncClient(base_url=url.replace("https", "http"), trust_env=False) as client:
            with pytest.raises(httpx2.TransportError):
                await client.get("/healthz")
        process.send_signal(signal.SIGTERM)
        assert (await exit_of(process))[0] == 0


REFUSED: list[tuple[list[str], dict[str, Any], str]] = [
    (["--listen", "0.0.0.0:0"], {}, "--allow-plain-http"),
    (["--listen", "[::]:0"], {}, "--allow-plain-http"),
    (["--listen", "nowhere"], {}, "HOST:PORT"),
    (["--listen", "127.0.0.1:99999"], {}, "HOST:PORT"),
    (["--drain", "soon"], {}, "length of time"),
    ([], {"tls_certificate": "nope.pem"}, "tls_key"),
    ([], {"tls_certificate": "nope.pem", "tls_key": "nope.pem"}, "TLS certificate"),
    (["--workspace", "no-such-folder"], {}, "no-such-folder"),
]


@pytest.mark.parametrize(("arguments", "table", "word"), REFUSED)
def test_what_cannot_be_served_is_refused_in_a_sentence(
    world: DoorWorld, arguments: list[str], table: dict[str, Any], word: str
) -> None:
    """R77: an open door without TLS, or settings that can't be, exit 2 before anything is started."""
    world.host_table = table
    done = subprocess.run(
        [*command(world), *arguments],
        cwd=world.home,
        env=world.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (world.data / "api-key").exists()


async def test_keys_are_made_and_revoked_beside_a_running_host(world: DoorWorld) -> None:
    """Keys come and go by command whether or not a host runs; a revoked one is refused within a second."""

    def remit(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, "keys", *arguments],
            cwd=world.home,
            env=world.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    early = await asyncio.to_thread(remit, "create", "early", "--scopes", "read")
    assert early.returncode == 0
    assert early.stdout.startswith("rk_")
    (world.data / "api-key").write_text(early.stdout)  # so that no first key is due
    async with serving(world) as served, served.client() as client:
        assert (await client.get("/api/v1/runs")).status_code == 200
        made = await asyncio.to_thread(
            remit, "create", "ci", "--scopes", "run,read", "--bindings", "reviewed", "--max-cost", "2",
            "--expires", "90d",
        )  # fmt: skip
        secret = made.stdout.strip()
        headers = {"Authorization": f"Bearer {secret}"}
        assert (await client.get("/api/v1/runs", headers=headers)).status_code == 200
        listed = await asyncio.to_thread(remit, "list")
        assert secret not in listed.stdout
        assert "ci" in listed.stdout
        again = await asyncio.to_thread(remit, "create", "ci", "--scopes", "run")
        assert (again.returncode, again.stdout) == (2, "")
        assert (await asyncio.to_thread(remit, "revoke", "ci")).returncode == 0
        await asyncio.sleep(1.1)
        assert (await client.get("/api/v1/runs", headers=headers)).status_code == 401
        assert (await asyncio.to_thread(remit, "revoke", "nobody")).returncode == 2
        wrong = await asyncio.to_thread(remit, "create", "x", "--scopes", "everything")
        assert wrong.returncode == 2
        assert "Traceback" not in wrong.stderr
