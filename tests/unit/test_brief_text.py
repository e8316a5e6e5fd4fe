"""The brief says what a run should know, in the same bytes for the same base."""

from __future__ import annotations

from remit.contract import CheckState
from remit.workspaces._base import BaseEntry, BasePin, Uncommitted
from remit.workspaces._brief import INSTRUCTION_BYTES, Brief, BriefFacts, write_brief

PIN = BasePin(
    id="git:0123456789ab+cafe",
    kind="worktree",
    root="/home/me/project",
    lower="/home/me/project",
    store="/data/pin",
    commit="0123456789ab" + "0" * 28,
    branch="refs/heads/main",
    uncommitted=(Uncommitted(path="src/app.py", state="modified"),),
    recent=("01234567 Add a thing",),
    notes=("sub stays as it is and no patch touches it: submodule",),
)
FACTS = BriefFacts(isolation="overlay", sandbox="bubblewrap", tools_on_path=("venv: .venv",))


async def brief(files: dict[str, bytes], *, facts: BriefFacts = FACTS, links: tuple[str, ...] = ()) -> Brief:
    async def read(path: str) -> bytes:
        return files[path]

    listing = {path: BaseEntry(mode="120000" if path in links else "100644") for path in files}
    return await write_brief(PIN, listing, facts, read=read)


async def test_what_it_says() -> None:
    """Root, base, sandbox, files, languages, checks, commits and uncommitted work are all there."""
    checks = (
        CheckState(id="pytest", command="python3 -m pytest -q", why="pytest.ini", base_exit=1, ms=1234),
        CheckState(id="lint", command="ruff", why="named", problem="ruff can't be started: missing"),
    )
    facts = BriefFacts(isolation="copy", sandbox="none", network=True, checks=checks, subdir="src")
    made = await brief({"src/app.py": b"", "src/b.py": b"", "x.js": b"", "README": b""}, facts=facts)
    for part in (
        "/home/me/project/src",
        "git:0123456789ab+cafe",
        "Network: on",
        "Isolation: copy. Sandbox: none.",
        "sub stays as it is",
        "src/app.py",
        "Python (2 files), JavaScript (1 files)",
        "pytest: `python3 -m pytest -q` (pytest.ini); on the base: exits 1",
        "on the base: ruff can't be started: missing",
        "01234567 Add a thing",
        "modified: src/app.py",
    ):
        assert part in made.text
    assert "1234" not in made.text.replace("01234567", "").replace("0123456789ab", "")


async def test_the_same_base_gives_the_same_bytes() -> None:
    """Prompts are cached by their bytes: no clock, no order of a dictionary, no path of the node's own."""
    first = await brief({"a.py": b"", "b.py": b"", "AGENTS.md": b"x\n"})
    second = await brief({"AGENTS.md": b"x\n", "b.py": b"", "a.py": b""})
    assert first.text == second.text
    assert first.sha256 == second.sha256
    assert PIN.store not in first.text


async def test_instructions_from_root_to_working_folder() -> None:
    """AGENTS.md of every folder on the way, root first, with hashes; CLAUDE.md only where there is none."""
    files = {
        "AGENTS.md": b"root\n",
        "a/b/AGENTS.md": b"deep\n",
        "a/CLAUDE.md": b"not this\n",
        "c/AGENTS.md": b"nor this\n",
    }
    facts = BriefFacts(isolation="overlay", sandbox="bubblewrap", subdir="a/b")
    made = await brief(files, facts=facts)
    assert [path for path, _ in made.instructions] == ["AGENTS.md", "a/b/AGENTS.md"]
    assert made.text.index("root\n") < made.text.index("deep\n")
    assert "not this" not in made.text
    assert "nor this" not in made.text
    only = await brief({"CLAUDE.md": b"claude\n"})
    assert [path for path, _ in only.instructions] == ["CLAUDE.md"]
    assert (await brief({"x": b""})).instructions == ()


async def test_instructions_are_bounded() -> None:
    """32 KiB of instructions at most; the nearest file is kept whole first."""
    big = b"line\n" * 10_000
    facts = BriefFacts(isolation="overlay", sandbox="bubblewrap", subdir="a")
    made = await brief({"AGENTS.md": big, "a/AGENTS.md": b"near\n"}, facts=facts)
    assert "near\n" in made.text
    assert "(cut here)" in made.text
    assert len(made.text.encode()) < INSTRUCTION_BYTES + 4_000


async def test_a_link_to_instructions_stays_inside() -> None:
    """R34: AGENTS.md may be a link to another file of the base, and to nothing else."""
    inside = await brief(
        {"AGENTS.md": b"docs/agents.md", "docs/agents.md": b"linked\n"}, links=("AGENTS.md",)
    )
    assert "linked\n" in inside.text
    for target in (b"/etc/passwd", b"../../etc/passwd", b"AGENTS.md", b"absent"):
        outside = await brief({"AGENTS.md": target}, links=("AGENTS.md",))
        assert outside.instructions == ()


async def test_a_large_tree_is_outlined() -> None:
    """50 000 files become folders with counts, within bounds."""
    files = {f"pkg{n % 40}/sub{n % 7}/deep/f{n}.py": b"" for n in range(50_000)}
    made = await brief({**files, "top.toml": b""})
    assert "pkg0/ (" in made.text
    assert "top.toml" in made.text
    assert len(made.text) < 8_000


async def test_text_that_cannot_be_sent_is_replaced() -> None:
    """R44: NUL and lone surrogates in names and instructions don't reach a prompt."""
    made = await brief({"bad\udcff.py": b"", "AGENTS.md": b"nul\x00 and \xff\n"})
    made.text.encode("utf-8")
    assert "\x00" not in made.text
    assert '"bad\\377.py"' in made.text
