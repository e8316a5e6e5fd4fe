"""Reviewed runs on repositories as people have them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from git_repository import git, look, make_repository, write
from remit.testing import Reply
from whole_kit import (
    Ended,
    World,
    chat_fake,
    differing,
    judged,
    look_closely,
    reviewed,
    shell,
    tool,
    use,
)

ROOT = Path(__file__).resolve().parents[2]
MANY = 50_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with nothing in it."""
    made = tmp_path.resolve() / "home"
    made.mkdir(mode=0o700)
    return made


def reviewed_bytes(ended: Ended) -> None:
    """The patch that was applied is the one that was reviewed, and it was the last thing to change it."""
    decided = ended.of_type("review.decided")[-1]
    finalizing = ended.of_type("run.finalizing")[-1]
    intended = ended.of_type("delivery.intent")[-1]
    assert decided["review"]["content_hash"] == finalizing["content_hash"]
    assert decided["patch"]["sha256"] == intended["patch"]["sha256"]
    assert ended.view.patch is not None
    assert ended.view.patch.sha256 == intended["patch"]["sha256"]
    assert ended.view.patch.reviewed
    assert ended.view.delivery is not None
    assert ended.view.delivery.status == "delivered"


async def test_this_projects_own_repository(home: Path, tmp_path: Path) -> None:
    """A clone of this very project: its AGENTS.md is in the brief; what was changed changes, no more."""
    root = tmp_path.resolve() / "own"
    if not (ROOT / ".git").exists():
        pytest.skip("the tests don't lie in a git repository")
    subprocess.run(["git", "clone", "-q", "--local", "--no-hardlinks", str(ROOT), str(root)], check=True)
    with chat_fake() as fake:
        world = World(root=root, home=home, fake=fake, workspace={"checks": []})
        new = "def answer() -> int:\n    return 42\n"
        fake.script(
            *reviewed(
                use("write_file", relative_path="src/remit/answer.py", content=new),
                use("edit_file", relative_path="CHANGELOG.md", old="# Changelog", new="# The changelog"),
                shell("git status --short; git log --oneline | head -3; ls .git/hooks 2>/dev/null | wc -l"),
                review=[use("read_file", relative_path="src/remit/answer.py"), judged(output="42 it is.")],
            )
        )
        before, log = look_closely(root), git(root, "log", "--oneline")
        ended = await world.run()
    assert ended.ending == ("completed", None, None), ended.results
    assert ended.view.output == "42 it is."
    assert differing(before, look_closely(root)) == {"src/remit/answer.py", "CHANGELOG.md"}
    assert (root / "src/remit/answer.py").read_text() == new
    assert git(root, "log", "--oneline") == log
    assert " M CHANGELOG.md\n?? src/remit/answer.py" in ended.results[2]["content"]
    assert "Working in this repository" in fake.requests[0].text, "AGENTS.md stands in the brief"
    reviewed_bytes(ended)


# ---- src layout, editable install, an interpreter in a pyenv-like place


@pytest.fixture
def pyenv(tmp_path: Path, home: Path) -> Path:
    """A `versions/X` folder in the home whose interpreter is this machine's own, as pyenv lays it out.

    The interpreter is copied, its library isn't: a `lib` beside it would be the copy of a whole Python.
    """
    version = home / ".pyenv" / "versions" / "3.11.99"
    base = Path(sys.base_prefix)
    (version / "bin").mkdir(parents=True)
    real = Path(os.path.realpath(sys._base_executable))  # type: ignore[attr-defined] - not in the stubs
    shutil.copy2(real, version / "bin" / "python3")
    (version / "bin" / "python").symlink_to("python3")
    (version / "bin" / real.name).symlink_to("python3") if real.name != "python3" else None
    shutil.copytree(
        base / "lib" / f"python3.{sys.version_info.minor}",
        version / "lib" / f"python3.{sys.version_info.minor}",
        symlinks=True,
        ignore=shutil.ignore_patterns("site-packages", "test", "tests", "__pycache__", "idlelib", "tkinter"),
    )
    for shared in (base / "lib").glob("libpython*"):
        shutil.copy2(shared, version / "lib" / shared.name, follow_symlinks=False)
    return version


SRC_LAYOUT = {
    "pyproject.toml": '[project]\nname = "ledger"\nversion = "1.0"\n[tool.pytest.ini_options]\n',
    "src/ledger/__init__.py": "from ledger.sums import total\n",
    "src/ledger/sums.py": "def total(values):\n    return sum(values) + 1\n",
    "tests/test_sums.py": (
        "import unittest\n\nimport ledger\n\n\nclass SumTest(unittest.TestCase):\n"
        "    def test_total(self):\n        self.assertEqual(ledger.total([1, 2]), 3)\n"
    ),
    "tests/__init__.py": "",
    ".gitignore": "__pycache__/\n",
}


WHERE = "import sys, ledger; print(sys.base_prefix, ledger.__file__)"


async def test_a_src_layout_with_its_environment_elsewhere(home: Path, tmp_path: Path, pyenv: Path) -> None:
    """An editable install outside the tree means the checkout; the base interpreter is found."""
    root = make_repository(tmp_path.resolve() / "ledger", SRC_LAYOUT)
    environment = tmp_path.resolve() / "envs" / "ledger"
    subprocess.run(
        [str(pyenv / "bin" / "python3"), "-m", "venv", "--without-pip", str(environment)],
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
        timeout=60,
    )
    (site,) = environment.glob("lib/python3.*/site-packages")
    (site / "__editable__.ledger-1.0.pth").write_text(f"{root / 'src'}\n")
    with chat_fake() as fake:
        world = World(
            root=root,
            home=home,
            fake=fake,
            environment={
                "VIRTUAL_ENV": str(environment),
                "PATH": f"{environment / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            },
        )
        fake.script(
            *reviewed(
                shell(f"command -v python; python -c '{WHERE}'"),
                use(
                    "edit_file", relative_path="src/ledger/sums.py", old="sum(values) + 1", new="sum(values)"
                ),
                shell("python -m unittest -q 2>&1 && python -c 'import ledger; print(ledger.total([1, 2]))'"),
            )
        )
        before = look_closely(root)
        ended = await world.run()
    assert ended.ending == ("completed", None, None), ended.results
    found = ended.results[0]["content"].split()
    assert found[0] == str(environment / "bin" / "python")
    assert found[1] == str(pyenv)
    assert found[2] == str(root / "src/ledger/__init__.py")
    assert "\n3\n" in ended.results[2]["content"]
    (check,) = ended.view.checks
    assert (check.base_exit, check.exit, check.gate) == (1, 0, "pass")
    assert differing(before, look_closely(root)) == {"src/ledger/sums.py"}
    reviewed_bytes(ended)


# ---- a folder of a monorepo


PAY = {
    "services/pay/pay.py": "def fee(amount):\n    return amount // 10\n",
    "services/pay/test_pay.py": (
        "import unittest\n\nfrom pay import fee\n\n\nclass FeeTest(unittest.TestCase):\n"
        "    def test_fee(self):\n        self.assertEqual(fee(200), 4)\n"
    ),
}


@pytest.fixture(scope="session")
def monorepo(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A repository of 50 000 files with one small project in it; in memory, where that is a folder."""
    memory = Path("/dev/shm")
    root = (
        Path(tempfile.mkdtemp(dir=memory)) if memory.is_dir() else tmp_path_factory.mktemp("many").resolve()
    )
    git(root, "init", "-q", "-b", "main")
    lines = ["blob", "mark :1", "data 10", "value = 1", ""]
    for mark, content in enumerate(PAY.values(), start=2):
        lines += ["blob", f"mark :{mark}", f"data {len(content)}", content]
    lines += ["commit refs/heads/main", "committer Tester <tester@example.invalid> 1700000000 +0000"]
    lines += ["data 3", "all"]
    lines += [f"M 100644 :{mark} {name}" for mark, name in enumerate(PAY, start=2)]
    lines += [
        f"M 100644 :1 area{number % 20:02}/part{number // 100:03}/module{number % 100:02}.py"
        for number in range(MANY)
    ]
    git(root, "fast-import", "--quiet", stdin="\n".join([*lines, ""]).encode())
    git(root, "reset", "-q", "--hard")
    yield root
    shutil.rmtree(root)


@pytest.mark.slow
async def test_a_folder_of_a_monorepo(home: Path, monorepo: Path) -> None:
    """50 000 files: commands start in the folder, its own check is run, one file changes, none is touched."""
    pay = monorepo / "services" / "pay"
    with chat_fake() as fake:
        world = World(root=monorepo, home=home, fake=fake, subdir="services/pay")
        fake.script(
            *reviewed(
                shell("pwd; ls; git status --short | wc -l"),
                use("search", pattern="def fee"),
                use("edit_file", relative_path="services/pay/pay.py", old="// 10", new="// 50"),
                shell("python3 -m unittest -q 2>&1"),
            )
        )
        before = look_closely(monorepo, content=False)
        assert len(before) > MANY
        began = time.monotonic()
        ended = await world.run()
        took_s = time.monotonic() - began
    assert ended.ending == ("completed", None, None), ended.results
    assert ended.results[0]["content"].splitlines()[:3] == [str(pay), "pay.py", "test_pay.py"]
    assert "services/pay/pay.py" in ended.results[1]["content"]
    assert "OK" in ended.results[3]["content"]
    (check,) = ended.view.checks
    assert (check.base_exit, check.exit) == (1, 0)
    assert differing(before, look_closely(monorepo, content=False)) == {"services/pay/pay.py"}
    assert took_s < 60
    reviewed_bytes(ended)


# ---- work that isn't committed


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """A repository in the middle of work: staged, changed, new, removed, ignored, renamed, linked."""
    root = make_repository(
        tmp_path.resolve() / "busy",
        {
            "kept.txt": "kept\n",
            "staged.txt": "old\n",
            "changed.txt": "old\n",
            "both.txt": "old\n",
            "removed.txt": "here\n",
            "named.txt": "name\n",
            "run.sh": "#!/bin/sh\necho run\n",
            ".gitignore": "*.log\nbuild/\n",
        },
    )
    write(root, {"staged.txt": "staged\n", "both.txt": "staged\n", "new-staged.txt": "new\n"})
    git(root, "add", "staged.txt", "both.txt", "new-staged.txt")
    git(root, "mv", "named.txt", "renamed.txt")
    write(
        root,
        {
            "both.txt": "staged and changed\n",
            "changed.txt": "changed\r\nwith CRLF\r\n",
            "untracked.txt": "untracked\n",
            "deep/er/untracked.bin": bytes(range(256)),
            "noise.log": "ignored\n",
            "build/out.o": b"\0\1",
        },
    )
    (root / "removed.txt").unlink()
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("kept.txt")
    return root


async def test_work_that_is_not_committed_is_the_base(home: Path, busy: Path) -> None:
    """The run starts from what lies there and changes nothing else; the user's index stays as it was."""
    with chat_fake() as fake:
        world = World(root=busy, home=home, fake=fake, workspace={"checks": []})
        edits = Reply(
            tool_calls=(
                tool("edit_file", relative_path="changed.txt", old="changed", new="changed by the run"),
                tool("edit_file", relative_path="untracked.txt", old="untracked", new="tracked?"),
                tool("delete_file", relative_path="both.txt"),
                tool("write_file", relative_path="deep/new.txt", content="new\n"),
                tool("move_file", relative_path="renamed.txt", new_relative_path="moved.txt"),
            )
        )
        fake.script(*reviewed(shell("git status --short; cat both.txt; ls; cat noise.log link"), edits))
        before, index = look_closely(busy), git(busy, "diff", "--cached")
        ended = await world.run()
    assert ended.ending == ("completed", None, None), ended.results
    seen = ended.results[0]["content"]
    assert "staged and changed" in seen
    assert "removed.txt" not in seen
    assert "untracked.txt" in seen
    assert "kept" in seen
    assert {result["status"] for result in ended.results} == {"success"}, ended.results
    assert git(busy, "diff", "--cached") == index
    after = look_closely(busy)
    expected = {"changed.txt", "untracked.txt", "both.txt", "deep/new.txt", "renamed.txt", "moved.txt"}
    assert differing(before, after) == expected
    assert (busy / "changed.txt").read_bytes() == b"changed by the run\r\nwith CRLF\r\n"
    assert not (busy / "both.txt").exists()
    reviewed_bytes(ended)


async def test_the_head_alone_can_be_the_base(home: Path, busy: Path) -> None:
    """With base `head` the run doesn't see what isn't committed, and leaves that as it is."""
    with chat_fake() as fake:
        world = World(root=busy, home=home, fake=fake, workspace={"checks": []})
        fake.script(
            *reviewed(
                shell("cat both.txt changed.txt; ls"),
                use("write_file", relative_path="kept.txt", content="kept by the run\n"),
            )
        )
        before = look_closely(busy)
        request = world.request().model_copy(
            update={"workspace": world.request().workspace.model_copy(update={"base": "head"})}  # type: ignore[union-attr] - it has one
        )
        async with world.host() as host:
            ended = await Ended.of(host, await host.start(request))
    assert ended.ending == ("completed", None, None), ended.results
    seen = ended.results[0]["content"]
    assert seen.startswith("old\nold\n")
    assert "untracked.txt" not in seen
    assert differing(before, look_closely(busy)) == {"kept.txt"}


async def test_a_change_meanwhile_is_a_conflict(home: Path, busy: Path) -> None:
    """A path that somebody touched meanwhile: nothing at all is applied, and the patch is kept."""
    with chat_fake() as fake:
        world = World(root=busy, home=home, fake=fake, workspace={"checks": []})
        edits = Reply(
            tool_calls=(
                tool("edit_file", relative_path="kept.txt", old="kept", new="kept by the run"),
                tool("write_file", relative_path="another.txt", content="x\n"),
            )
        )
        slow = Reply(text=judged().text, delay_ms=1_000)
        fake.script(*reviewed(edits, review=[slow]))
        async with world.host() as host:
            run = await host.start(world.request())
            async for event in run.events():
                if event.type == "stage.started" and event.data["stage_id"] == "review-1":
                    (busy / "kept.txt").write_text("kept by somebody else\n")
            before = look_closely(busy)
            ended = await Ended.of(host, run)
            patch = await host.store.read_artifact(run.id, "patch")
    assert ended.ending == ("failed", "workspace", "delivery_conflict")
    assert ended.view.output == "It is mended."
    assert ended.view.delivery is not None
    assert ended.view.delivery.status == "conflict"
    assert look_closely(busy) == before
    assert patch is not None
    assert "+kept by the run" in patch.text


@pytest.fixture(autouse=True)
def _nothing_of_the_users_is_left(home: Path) -> Generator[None]:
    yield
    checkouts = home / ".local/share/remit/node/checkouts"
    left = look(checkouts) if checkouts.is_dir() else {}
    assert not [name for name in left if "/" not in name and not (checkouts / name / "kept").exists()]
