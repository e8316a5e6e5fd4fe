"""The build's own checks: each finds what it is for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import pytest
from pydantic import BaseModel, Field

import check_docs
import check_files
import check_imports
import coverage_table
import reference_commands
import reference_settings
import reference_shapes
import repository

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_may_not_grow_without_end() -> None:
    """More than 400 lines warn, more than 800 fail, and data isn't counted."""
    name = Path("src/remit/work/_registry.py")
    assert check_files.size_problems(name, "x = 1\n" * 400) == ([], [])
    problems, warnings = check_files.size_problems(name, "x = 1\n" * 401)
    assert (problems, len(warnings)) == ([], 1)
    problems, warnings = check_files.size_problems(name, "x = 1\n" * 801)
    assert (len(problems), warnings) == (1, [])
    assert check_files.size_problems(Path("tests/attacks/data/a.py"), "x = 1\n" * 801) == ([], [])


def test_a_long_function_is_named() -> None:
    """A function of more than 50 lines is pointed at; its docstring doesn't count."""
    body = '    """' + "word\n" * 60 + '    """\n' + "    x = 1\n" * 50
    assert check_files.long_functions(Path("a.py"), f"def f():\n{body}") == []
    assert check_files.long_functions(Path("a.py"), f"def f():\n{body}    y = 2\n") != []


OFF = "x = f()  # " + "type: " + "ignore[misc]"
"""Put together, so that this file switches nothing off."""


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (f"{OFF}\n", 1),
        (f"{OFF} - of\n", 1),
        (f"{OFF} - a future of any answer\n", 0),
        (f"# A future of any answer.\n{OFF}\n", 0),
        (f"# A future of any answer.\ny = 1\n{OFF}\n", 1),
        (f"{OFF} - a future of any answer\n{OFF}\n", 0),
        (f"{OFF}\n{OFF} - a future of any answer\n", 1),
        ("y = 1  # a comment\n" + OFF.replace("type: ignore[misc]", "noqa: " + "S105, S106") + "\n", 1),
        ("# ruff: " + "noqa: E501  a script reads best unbroken\n", 0),
        (f"y = '{OFF}'\n", 0),
    ],
    ids=range(10),
)
def test_a_rule_is_not_switched_off_without_a_reason(text: str, problems: int) -> None:
    """`type: ignore` and the like say why, behind them or in the comment above; a string isn't a comment."""
    assert len(check_files.reason_problems(Path("a.py"), text)) == problems
    assert check_files.reason_problems(Path("a.md"), text) == []


@pytest.mark.parametrize("name", ["src/remit/utils.py", "src/remit/work/_helpers.py", "tools/common/a.py"])
def test_a_name_must_say_something(name: str) -> None:
    """`utils`, `common`, `helpers`, `manager` and `base` name nothing."""
    assert check_files.name_problems(Path(name))
    assert check_files.name_problems(Path("src/remit/work/_registry.py")) == []


def test_no_file_names_a_registry_or_this_machine(tmp_path: Path) -> None:
    """Neither a package registry's address nor a path of the machine gets into a file."""
    machine = [re.compile(r"(?<![\w.~-])/srv/checkouts/mine(?=/)")]
    registry = "https://py" + "pi.org/simple"
    assert check_files.word_problems(Path("a.md"), f"see {registry}\n", [])
    assert check_files.word_problems(Path("a.md"), "see /srv/checkouts/mine/src\n", machine)
    assert check_files.word_problems(Path("a.md"), "see src/srv/checkouts/mine/src\n", machine) == []
    deep = tmp_path / "deep" / "checkout"
    assert any(pattern.search(f"in {deep}/src") for pattern in check_files.machine_paths(deep))


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("work/_registry.py", "sqlite3"),
        ("usage/_ledger.py", "subprocess"),
        ("contract/_run.py", "urllib.request"),
        ("cli/_run.py", "pydantic_ai.models"),
        ("models/_pool.py", "rich"),
        ("runs/_supervisor.py", "sqlite3"),
        ("workspaces/keeper/_files.py", "pydantic"),
        ("workspaces/keeper/_files.py", "remit.errors"),
    ],
)
def test_a_library_has_one_door(path: str, module: str) -> None:
    """Rooms that decide import nothing that acts, and outside libraries come in by their own room."""
    found = check_imports.Import(path=Path(path), line=1, module=module)
    assert check_imports.problem_with(found) is not None


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("storage/_sqlite.py", "sqlite3"),
        ("models/_openai.py", "pydantic_ai.direct"),
        ("work/_registry.py", "dataclasses"),
        ("contract/_run.py", "urllib.parse"),
        ("workspaces/keeper/_files.py", "remit.workspaces.keeper._paths"),
        ("workspaces/keeper/_files.py", "os"),
    ],
)
def test_the_right_room_may_import_it(path: str, module: str) -> None:
    """The same rule lets the right room in."""
    found = check_imports.Import(path=Path(path), line=1, module=module)
    assert check_imports.problem_with(found) is None


def test_deferred_imports_are_seen(tmp_path: Path) -> None:
    """An import inside a function counts as much as one at the top."""
    source = "def f():\n    from sqlite3 import connect\n    importlib.import_module('yaml')\n"
    (tmp_path / "work.py").write_text(source)
    modules = [found.module for found in check_imports.imports_of(tmp_path)]
    assert modules == ["sqlite3", "sqlite3.connect", "yaml"]


def test_rules_are_read_with_their_ranges() -> None:
    """`R39-R41`, `S3` and `S3–5` name rules; a comment and other words don't."""
    assert coverage_table.read_rules("R39-R41, S3\u20135\n# R70\nRSA2 B7") == [
        "S3",
        "S4",
        "S5",
        "B7",
        "R39",
        "R40",
        "R41",
    ]


def test_a_rule_without_a_proof_is_missed(tmp_path: Path) -> None:
    """The page lists what is proved, and what is required and isn't."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_one.py").write_text(
        'class TestMachine:\n    """S7"""\n\ndef test_it():\n    """R20 holds."""\n'
    )
    proofs = coverage_table.collect(tests)
    assert proofs == {"S7": ["tests/test_one.py::TestMachine"], "R20": ["tests/test_one.py::test_it"]}
    page = coverage_table.render(proofs, ["R20", "R21"])
    assert "| R20 | `tests/test_one.py::test_it` |" in page
    assert "not proved yet: R21." in page


def test_a_link_must_lead_somewhere(tmp_path: Path) -> None:
    """A link to a file that isn't there is found; code and other sites are left alone."""
    (tmp_path / "a.md").touch()
    text = "[a](a.md#part) [b](b.md) [c](https://example.invalid) `[d](d.md)`\n"
    assert check_docs.link_problems(tmp_path, Path("page.md"), text) == [
        "page.md: the link to b.md leads nowhere"
    ]


def test_the_change_log_has_one_form() -> None:
    """Releases, kinds, and one sentence an entry."""
    good = "# Changelog\n\n## Unreleased\n\n### Added\n\n* `remit run` runs. \n".replace(". \n", ".\n")
    assert check_docs.change_log_problems(good) == []
    bad = "## 1.0\n### New\n* no full stop\n- dash.\n* One. Two.\n"
    assert len(check_docs.change_log_problems(bad)) == 5


def test_decisions_are_numbered(tmp_path: Path) -> None:
    """A gap in the numbers, a missing part and a missing line in the list are found."""
    (tmp_path / "README.md").write_text("")
    (tmp_path / "0002-two.md").write_text("# Two\n## Status\n## Context\n## Decision\n")
    problems = check_docs.decision_problems(tmp_path)
    assert len(problems) == 3


def test_what_git_ignores_is_not_ours(tmp_path: Path) -> None:
    """The checks look at what is, or would be, committed."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("out\n")
    (tmp_path / "out").touch()
    (tmp_path / "in").touch()
    assert repository.own_files(tmp_path) == [Path(".gitignore"), Path("in")]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_left_process_fails_the_run() -> None:
    """A daemon that outlives the command is found, named and ended, and the command has failed."""
    script = "setsid sleep 61.7 >/dev/null 2>&1 & exit 0"
    answer = _leftovers("sh", "-c", script)
    assert answer.returncode == 1
    assert "sleep 61.7" in answer.stderr
    assert _leftovers("sh", "-c", "exit 3").returncode == 3
    assert _leftovers("true").returncode == 0


def _leftovers(*command: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(ROOT / "tools" / "leftovers.py"), "--", *command]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)


class _Member(BaseModel):
    """One model of a pool."""

    model: str
    """Provider and model."""


class _Pool(BaseModel):
    """Who may be asked."""

    members: tuple[_Member, ...] = ()


class _File(BaseModel):
    """What a file may say."""

    pools: dict[str, _Pool] = Field(default_factory=dict[str, _Pool])
    spare: _Pool | None = None
    others: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    free: dict[str, Any] = Field(default_factory=dict[str, Any])


def test_each_table_of_the_settings_is_found() -> None:
    """The reference walks through named tables, lists and optional ones, and shows each shape once."""
    owners = {"others.NAME": _Member}
    found = [place for place, _ in reference_settings.tables_of(_File, owners)]
    assert found == ["pools.NAME", "pools.NAME.members[]", "spare", "spare.members[]", "others.NAME"]
    page = reference_settings.page_of(_File, owners)
    assert "## `pools.NAME.members[]`, `spare.members[]`, `others.NAME`" in page
    assert "| `model` | `string` | required | Provider and model. |" in page


def test_a_type_has_one_name() -> None:
    """The pages are the same whichever Python makes them."""
    assert reference_shapes.type_name(dict[str, _Pool] | None) == "object of _Pool | null"
    assert reference_shapes.type_name(Literal["a", "b"]) == '"a" | "b"'
    assert reference_shapes.type_name(list[Annotated[int, Field(gt=0)]]) == "list of integer"


def test_each_command_is_found() -> None:
    """The reference walks through groups, names arguments and options, and leaves out what is hidden."""
    group = click.Group("tool", help="Does things.")
    group.add_command(
        click.Command(
            "go",
            help="Goes.",
            params=[
                click.Argument(["place"]),
                click.Option(["--fast/--slow"], help="How."),
                click.Option(["--by"]),
            ],
        )
    )
    group.add_command(click.Command("secret", hidden=True))
    page = reference_commands.page_of(group, "tool")
    assert "## `tool go`" in page
    assert "tool go [OPTIONS] PLACE" in page
    assert "| `--fast` `--slow` | How. |" in page
    assert "| `--by` `TEXT` |  |" in page
    assert "secret" not in page
