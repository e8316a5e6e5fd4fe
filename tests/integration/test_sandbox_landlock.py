"""The level `landlock`: files, network and processes are held without any namespace; what isn't is told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from git_repository import make_repository
from keeper_places import place, run
from remit.workspaces import find_toolchains
from remit.workspaces.keeper._landlock import landlock_version, leaves_open
from service_kit import FILES, node_of

# ruff: noqa: E501  a script reads best unbroken

pytestmark = pytest.mark.skipif(landlock_version() < 3, reason="this kernel has no Landlock")


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
async def test_work_in_the_tree_goes_on_as_usual(tmp_path: Path, isolation: str) -> None:
    """Commands read and write the checkout, HOME and TMPDIR, run programs, and start others."""
    async with place(tmp_path, sandbox="landlock", isolation=isolation) as here:
        checkout = await here.open()
        script = (
            "echo changed > tracked.txt; mkdir -p new/deep && cd new && echo x | tee deep/file > /dev/null; "
            'mv deep/file ../moved; echo h > ~/file; f=$(mktemp) && echo "$f" | grep -c scratch; '
            "python3 -c 'import os, socket; a, b = socket.socketpair(); print(os.getpid() > 0)'; "
            "sh -c 'exit 3'; echo $?; cat ../tracked.txt; pwd; head -c 4 /dev/urandom | wc -c; cat ~/file"
        )
        result = await run(checkout, script)
        assert result.stdout.decode().splitlines() == [
            *("1", "True", "3", "changed", f"{here.root}/new", "4", "h")
        ], result.text
        assert (here.root / "tracked.txt").read_text() == "original\n"
        assert checkout.sandbox == "landlock"


ATTEMPTS = {
    "read_outside": "cat {outside}/secret",
    "read_home": "cat {home}/secret; ls {home}",
    "read_data": "ls {data}; cat {data}/secret",
    "read_by_link": "ln -s {outside}/secret link && cat link",
    "read_proc_root": "cat /proc/self/root{outside}/secret /proc/{pid}/root{outside}/secret",
    "read_environment": "cat /proc/{pid}/environ /proc/{keeper}/environ",
    "read_masked": "cat {tools}/.netrc; cat {tools}/etc/npmrc",
    "read_other_checkout": "cat {data}/checkouts/other/tree/secret {data}/checkouts/other/upper/secret",
    "read_shadow": "grep -q root /etc/shadow && echo {canary}",
    "write_outside": "echo {canary} > {outside}/victim && echo {canary}",
    "truncate_outside": "python3 -c \"import os; os.truncate('{outside}/victim', 0); print('{canary}')\"",
    "remove_outside": "rm -f {outside}/victim && echo {canary}",
    "rename_outside": "mv {outside}/victim moved && echo {canary}",
    "link_outside": "ln {outside}/victim mine && echo {canary}",
    "write_tools": "echo x > {tools}/bin/tool && echo {canary}",
    "write_system": "touch /usr/bin/planted && echo {canary}",
    "write_tmp": "echo x > /tmp/planted-{canary} && echo {canary}",
    "write_memory": "python3 -c \"open('/proc/{pid}/mem', 'r+b').read(1); print('{canary}')\"",
    "signal": "kill -0 {pid} && echo {canary}",
    "tcp": "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port})); print('{canary}')\"",
    "udp": "python3 -c \"import socket as s; s.socket(2, 2).sendto(b'', ('127.0.0.1', 9)); print('{canary}')\"",
    "unix": "python3 -c \"import socket; socket.socket(1).connect('{outside}/socket'); print('{canary}')\"",
    "mount": "mount -t tmpfs none . && echo {canary}",
    "namespace": "unshare -Ur true && echo {canary}",
    "trace": "python3 -c \"import ctypes as c; print('{canary}' * (c.CDLL(None).ptrace(16, {pid}, 0, 0) == 0))\"",
}


HARMLESS = (
    *("read_outside", "read_home", "read_data", "read_by_link", "read_masked"),
    *("read_proc_root", "read_environment", "signal", "tcp", "udp", "unix"),
)
"""What is shown to get through where nothing holds it, so that its failure means something."""


async def test_attempts_to_get_out_fail(tmp_path: Path) -> None:
    """R2, R36: each of these works for whoever isn't confined, and none does here, as root or not."""
    base = tmp_path.resolve()
    canary = f"canary-{os.getpid()}"
    for name in ("outside", "home", "tools/bin", "tools/lib", "tools/etc"):
        (base / name).mkdir(parents=True)
    for name in ("outside/secret", "home/secret", "tools/.netrc", "tools/etc/npmrc"):
        (base / name).write_text(canary)
    (base / "outside/victim").write_text("original")
    (base / "tools/bin/tool").write_text("#!/bin/sh\necho tool\n")
    (base / "tools/bin/tool").chmod(0o755)
    listener = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(base / "outside/socket"))
    unix.listen()
    victim = subprocess.Popen(
        [sys.executable, "-c", "input()", "x"], env={"SECRET": canary}, stdin=subprocess.PIPE
    )
    try:
        async with place(base, sandbox="landlock") as here:
            (here.data / "secret").write_text(canary)
            tools = find_toolchains(
                here.root,
                environ={"PATH": f"{base / 'tools/bin'}:{os.environ['PATH']}"},
                home=base / "home",
                data=here.data,
            )
            other = await here.open("other", toolchains=tools)
            await run(other, f"echo {canary} > secret")
            checkout = await here.open("c1", toolchains=tools)
            words = {
                **{name: base / name for name in ("outside", "home", "tools")},
                "data": here.data,
                "pid": victim.pid,
                "keeper": checkout.pid,
                "canary": canary,
                "port": listener.getsockname()[1],
            }
            assert (await run(checkout, "tool")).stdout == b"tool\n"
            for name, script in ATTEMPTS.items():
                if name == "signal" and landlock_version() < 6:
                    continue
                result = await run(checkout, script.format(**words))
                assert canary.encode() not in result.stdout, (name, result.text)
            free = await here.open("free", toolchains=tools, sandbox="none", allow_unconfined=True)
            # A user's keeper lives in a namespace of its own, from which no other process can be looked into.
            for name in HARMLESS if os.geteuid() == 0 else HARMLESS[:-6]:
                result = await run(free, ATTEMPTS[name].format(**words))
                assert canary.encode() in result.stdout, (name, result.text)
    finally:
        victim.communicate(b"\n")
        listener.close()
        unix.close()
    assert (base / "outside/victim").read_text() == "original"
    assert (base / "tools/bin/tool").read_text() == "#!/bin/sh\necho tool\n"


async def test_a_run_at_this_level_says_what_it_leaves_open(tmp_path: Path) -> None:
    """The level is in the answer, with what isn't held; background processes are swept all the same."""
    root = make_repository(tmp_path / "repo", FILES)
    async with node_of(tmp_path, root, sandbox="landlock") as node:
        prepared = await node.prepare()
        assert prepared.sandbox == "landlock"
        assert any("It leaves open: modes, owners" in note for note in prepared.notes)
        opened = await node.open()
        assert opened.sandbox == "landlock"
        answer = await node.tool(
            "run_shell", command="setsid sleep 731 & python3 -m unittest -q 2>&1 | tail -1"
        )
        assert "FAILED (failures=1)" in answer.content
        assert "sleep 731" in answer.content
        await node.cleanup()
    assert len(leaves_open(5)) > len(leaves_open(6))
