"""Setup commands run once on a base; every run starts with what they made, and none changes it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from git_repository import make_repository, write
from remit.contract import NodeFailure, PrepareRequest
from remit.workspaces._kept import KeepLimits
from remit.workspaces._sweeping import sweep_node
from service_kit import FILES, Node, node_of

IGNORED = {**FILES, ".gitignore": "deps/\nbuilt\n", "package-lock.json": "{}\n"}
SETUP = [
    "mkdir -p deps && date +%N > deps/made && echo cached > ~/cache && pwd > built && rm -f app.py",
    "echo changed >> AGENTS.md; echo $TOKEN | wc -c > deps/length; echo runs >> ~/count",
]


@pytest.fixture(params=["overlay", "copy"])
def isolation(request: pytest.FixtureRequest) -> str:
    return request.param


async def started(node: Node, run_id: str) -> str:
    """What a run's commands see of the setup."""
    await node.open(run_id)
    answer = await node.tool(
        "run_shell", run_id, command="cat deps/made ~/cache built ~/count; ls; tail -1 AGENTS.md"
    )
    return answer.content.rpartition("\n[")[0]


def made(node: Node) -> list[Path]:
    return sorted((node.root.parent / "data" / "setups").glob("*"))


async def test_what_setup_makes_is_there_in_every_run(tmp_path: Path, isolation: str) -> None:
    """Ignored folders and HOME come along, changes to tracked files don't; no patch holds any of it."""
    root = make_repository(tmp_path / "repo", IGNORED)
    async with node_of(tmp_path, root, setup=SETUP, isolation=isolation, checks=[]) as node:
        prepared = await node.prepare()
        assert any(
            "setup changed files of the base" in note and "AGENTS.md" in note for note in prepared.notes
        )
        said = await started(node, "run_1")
        assert said.splitlines()[1:] == [
            *("cached", str(root), "runs", "AGENTS.md", "app.py", "built", "deps", "package-lock.json"),
            *("sub", "test_app.py", "Be brief."),
        ], said
        snapshot = await node.snapshot("run_1")
        assert (snapshot.patch, snapshot.ignored_changed) == ("", 0)
        spoil = "echo spoiled > deps/made; rm built; echo mine > ~/cache; rm ~/count; echo x > new.txt"
        await node.tool("run_shell", "run_1", command=spoil)
        assert [path.path for path in (await node.snapshot("run_1")).paths] == ["new.txt"]
        assert await started(node, "run_2") == said
        assert len(made(node)) == 1
        assert sorted(path.name for path in root.iterdir()) == sorted(
            [*(name for name in IGNORED if "/" not in name), "sub", ".git"]
        )
        for run_id in ("run_1", "run_2"):
            await node.cleanup(run_id)


async def test_setup_runs_again_when_what_it_hangs_on_changes(tmp_path: Path, isolation: str) -> None:
    """A lock file, a file that the settings name, the lines: not any other file, nor a new process."""
    root = make_repository(tmp_path / "repo", {**IGNORED, "tools/versions.txt": "1\n"})
    options: dict[str, Any] = {"setup": ["mkdir deps"], "setup_inputs": ["tools/*.txt"], "checks": []}
    options["isolation"] = isolation
    async with node_of(tmp_path, root, **options) as node:
        for files, count in (
            ({}, 1),
            ({"app.py": "changed\n"}, 1),
            ({"package-lock.json": "{ }\n"}, 2),
            ({"sub/requirements-dev.txt": "x\n"}, 3),
            ({"tools/versions.txt": "2\n"}, 4),
            ({"package-lock.json": "{}\n"}, 5),
        ):
            write(root, files)
            await node.prepare()
            assert len(made(node)) == count, files
    async with node_of(tmp_path, root, **options) as node:
        await node.prepare()
        assert len(made(node)) == 5
    options["setup"] = ["mkdir deps2"]
    async with node_of(tmp_path, root, **options) as node:
        await node.prepare()
        assert len(made(node)) == 6
        sweep_node(tmp_path / "data", time.time() + 20 * 24 * 3_600, keep=KeepLimits())
        assert made(node) == []


async def test_setup_runs_again_for_other_variables_and_other_tools(tmp_path: Path) -> None:
    """What the workspace lets through of the environment counts, and the folders that settings name."""
    root = make_repository(tmp_path / "repo", IGNORED)
    for name in ("one", "two"):
        (tmp_path / name / "bin").mkdir(parents=True)
    options: dict[str, Any] = {"setup": ["mkdir deps; echo $MODE > deps/made"], "checks": []}
    options["environment_allowlist"] = ["MODE", "ABSENT"]
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    for variables, more, count in (
        ({"MODE": "slim", "OTHER": "1"}, {}, 1),
        ({"MODE": "slim", "OTHER": "2"}, {}, 1),
        ({"MODE": "full"}, {}, 2),
        ({}, {}, 3),
        ({}, {"path": [one]}, 4),
        ({}, {"path": [two]}, 5),
        ({}, {"toolchains": [one]}, 6),
        ({}, {"toolchains": [two]}, 7),
    ):
        async with node_of(tmp_path, root, variables=variables, **options, **more) as node:
            await node.prepare()
            assert len(made(node)) == count, (variables, more)


async def test_commands_get_the_variables_that_are_allowed(tmp_path: Path) -> None:
    """R36: those alone, in setup, in checks and in a model's commands."""
    root = make_repository(tmp_path / "repo", IGNORED)
    told = "echo told=$TOLD untold=$UNTOLD"
    commands = [{"id": "told", "executable": "sh", "args": ["-c", f'[ "$({told})" = "told=yes untold=" ]']}]
    async with node_of(
        tmp_path,
        root,
        variables={"TOLD": "yes", "UNTOLD": "no"},
        environment_allowlist=["TOLD", "ABSENT"],
        setup=[f"mkdir deps; {told} > deps/made"],
        commands=commands,
        checks=["told"],
    ) as node:
        prepared = await node.prepare()
        assert [(check.base_exit, check.problem) for check in prepared.checks] == [(0, None)]
        await node.open()
        answer = await node.tool("run_shell", command=f"cat deps/made; {told}")
        assert answer.content.splitlines()[:2] == ["told=yes untold="] * 2
        await node.cleanup()


async def test_what_may_be_written_beside_the_workspace_is_told(tmp_path: Path) -> None:
    """A mount is read-only unless `:rw` says otherwise, and the brief tells which is which."""
    root = make_repository(tmp_path / "repo", IGNORED)
    for name in ("corpus", "scratch"):
        (tmp_path / name).mkdir()
    mounts = [str(tmp_path / "corpus"), f"{tmp_path / 'scratch'}:rw"]
    async with node_of(tmp_path, root, mounts=mounts, checks=[]) as node:
        prepared = await node.prepare()
        assert f"Available: mount {tmp_path / 'corpus'}\n" in prepared.brief
        assert f"Available: mount {tmp_path / 'scratch'} (writable)\n" in prepared.brief
        await node.open()
        for name in ("corpus", "scratch"):
            await node.tool("run_shell", command=f"echo x > {tmp_path / name}/made")
        await node.cleanup()
    assert not (tmp_path / "corpus/made").exists()
    assert (tmp_path / "scratch/made").read_text() == "x\n"


async def test_a_failing_setup_ends_the_preparation_with_its_output(tmp_path: Path) -> None:
    """`failed/workspace` `unavailable`: what was run, what it said, how it ended; nothing is kept."""
    root = make_repository(tmp_path / "repo", IGNORED)
    setup = ["touch deps-ok", "echo 'no such package: left-pad' >&2; exit 9", "touch never"]
    async with node_of(tmp_path, root, setup=setup, checks=[]) as node:
        answer = await node.service.handle(PrepareRequest(run_id="run_1", workspace_ref="app"))
        assert isinstance(answer, NodeFailure)
        assert answer.reason == "unavailable"
        for words in ("setup failed at `echo", "no such package: left-pad", "exit code 9"):
            assert words in answer.message
        assert made(node) == []
        assert list((tmp_path / "data" / "checkouts").iterdir()) == []


async def test_setup_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """It has its part of the preparation's time; its processes are gone then."""
    root = make_repository(tmp_path / "repo", IGNORED)
    async with node_of(tmp_path, root, setup=["sleep 600"], checks=[]) as node:
        request = PrepareRequest(run_id="run_1", workspace_ref="app", timeout_ms=5_000)
        answer = await node.service.handle(request)
        assert isinstance(answer, NodeFailure)
        # On a machine that is too busy for the grace of its end, the preparation's own time is up first.
        assert "setup failed at `sleep 600`\n\n[timed out" in answer.message or "too long" in answer.message
        assert made(node) == []


async def test_environment_made_by_setup_is_in_use(tmp_path: Path) -> None:
    """A virtual environment that setup makes is first in PATH, for checks and for commands."""
    root = make_repository(tmp_path / "repo", {**IGNORED, ".gitignore": ".venv/\n"})
    setup = [
        "python3 -m venv --without-pip .venv && echo 'echo tool' > .venv/bin/tool && chmod +x .venv/bin/tool"
    ]
    commands = [{"id": "tool", "executable": "tool"}]
    async with node_of(tmp_path, root, setup=setup, commands=commands, checks=["tool"]) as node:
        prepared = await node.prepare()
        assert [(check.base_exit, check.problem) for check in prepared.checks] == [(0, None)]
        await node.open()
        answer = await node.tool("run_shell", command="command -v python3 tool; echo $VIRTUAL_ENV")
        assert answer.content.splitlines()[:3] == [
            str(root / ".venv/bin/python3"),
            str(root / ".venv/bin/tool"),
            str(root / ".venv"),
        ]
        await node.cleanup()


async def test_a_commit_as_base_gets_setup_in_carried_folders_too(tmp_path: Path) -> None:
    """What setup installs into a carried folder of the root is the runs', and the root's stays as it is."""
    root = make_repository(tmp_path / "repo", {**IGNORED, ".gitignore": "node_modules/\n"})
    write(root, {"node_modules/own/x": "own\n", "sub/node_modules/y": "below\n"})
    setup = ["mkdir node_modules/added && echo added > node_modules/added/x && rm node_modules/own/x"]
    async with node_of(tmp_path, root, setup=setup, checks=[]) as node:
        opened = await node.prepare(base="head")
        await node.ask_open(opened.base)
        answer = await node.tool(
            "run_shell", command="cat sub/node_modules/y; ls node_modules/*; cat node_modules/added/x"
        )
        lines = answer.content.splitlines()
        assert (lines[0], lines[-2]) == ("below", "added"), answer.content
        await node.cleanup()
    assert (root / "node_modules/own/x").read_text() == "own\n"
    assert not (root / "node_modules/added").exists()


async def test_secrets_reach_those_that_they_were_declared_for(tmp_path: Path) -> None:
    """R36: setup, checks and tools get their own, masked where they are shown; no file keeps one."""
    root = make_repository(tmp_path / "repo", {**IGNORED, "sub/inner.txt": "inner\n"})
    (tmp_path / "db").write_text("db-secret-canary\n")
    secrets = [
        {"name": "NPM", "env": "NODE_NPM", "to": ["setup"]},
        {"name": "DB", "file": str(tmp_path / "db"), "to": ["checks", "tools"]},
    ]
    setup = ['echo "token=$NPM" > ~/.npmrc; mkdir deps; echo ok > deps/x; echo "db=$DB" > deps/y']
    commands = [{"id": "show", "executable": "sh", "args": ["-c", "echo $DB; echo npm=$NPM; exit 3"]}]
    async with node_of(
        tmp_path,
        root,
        variables={"NODE_NPM": "npm-secret-canary"},
        setup=setup,
        secrets=secrets,
        commands=commands,
        checks=["show"],
    ) as node:
        prepared = await node.prepare()
        assert any("a secret stands in it: home/.npmrc" in note for note in prepared.notes)
        await node.open()
        answer = await node.tool(
            "run_shell",
            command="cat ~/.npmrc deps/y; env | grep -c NPM; echo $DB; "
            "printf %s $DB | base64; echo $DB > sub/inner.txt",
        )
        assert answer.content.splitlines()[1:5] == ["db=", "0", "[redacted]", "[redacted]Q=="], answer.content
        read = await node.tool("read_file", relative_path="sub/inner.txt")
        assert "canary" not in read.content
        found = await node.tool("search", pattern="canary", relative_path="", is_regex=False)
        assert "db-secret" not in found.content
        snapshot = await node.snapshot()
        assert "canary" not in snapshot.patch
        assert "[redacted]" in snapshot.patch
        assert snapshot.frozen == ("sub/inner.txt",)
        assert "secret:sub/inner.txt (DB)" in snapshot.flags
        await node.cleanup()
    kept = [path for path in (tmp_path / "data").rglob("*") if path.is_file() and "runs" not in path.parts]
    assert not [path for path in kept if b"secret-canary" in path.read_bytes()]


async def test_a_secret_that_isnt_there_is_told_before_anything_runs(tmp_path: Path) -> None:
    """The message names the variable; nothing was opened."""
    root = make_repository(tmp_path / "repo", IGNORED)
    async with node_of(tmp_path, root, setup=["touch deps"], secrets=[{"name": "NPM"}], checks=[]) as node:
        answer = await node.service.handle(PrepareRequest(run_id="run_1", workspace_ref="app"))
        assert isinstance(answer, NodeFailure)
        assert "set the variable NPM where this node runs" in answer.message


async def test_a_cached_setup_costs_nothing(tmp_path: Path) -> None:
    """Once its base is known a preparation opens no checkout and runs nothing; nor does a new process."""
    root = make_repository(tmp_path / "repo", IGNORED)
    counted = tmp_path / "counted"
    counted.mkdir()
    setup = [f"echo ran >> {counted}/runs; mkdir deps"]
    for _ in range(2):
        async with node_of(tmp_path, root, setup=setup, mounts=[f"{counted}:rw"]) as node:
            await node.prepare()
            prepared = await node.prepare("run_2")
            assert prepared.cached
            assert list((tmp_path / "data" / "checkouts").iterdir()) == []
    assert (counted / "runs").read_text() == "ran\n"


async def test_setup_has_a_network_of_its_own(tmp_path: Path) -> None:
    """What `setup_network` lists is setup's alone; without it setup has what commands have."""
    root = make_repository(tmp_path / "repo", IGNORED)
    options: dict[str, Any] = {"setup": ["mkdir deps; echo proxy=$https_proxy > deps/made"], "checks": []}
    proxy = "http://127.0.0.1:7431"
    cases: dict[str, tuple[dict[str, Any], list[str], int]] = {
        "run_1": ({"setup_network": ["localhost:1"]}, [f"proxy={proxy}", "own="], 1),
        "run_2": ({"setup_network": False, "network": ["localhost:1"]}, ["proxy=", f"own={proxy}"], 2),
        "run_3": ({"network": ["localhost:1"]}, [f"proxy={proxy}", f"own={proxy}"], 2),
        "run_4": ({"network": ["localhost:2"]}, [f"proxy={proxy}", f"own={proxy}"], 3),
    }
    for run_id, (network, told, count) in cases.items():
        async with node_of(tmp_path, root, **options, **network) as node:
            await node.open(run_id)
            answer = await node.tool("run_shell", run_id, command="cat deps/made; echo own=$https_proxy")
            assert answer.content.splitlines()[:2] == told, network
            await node.cleanup(run_id)
        assert len(made(node)) == count, network
