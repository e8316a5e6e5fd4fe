"""Six repositories as people have them, each mended over every dialect: right patch, green checks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from git_repository import git, make_repository, write
from model_kit import need_sdk
from remit.testing import (
    AnthropicDialect,
    FakeProvider,
    GeminiDialect,
    OpenAIChatDialect,
    OpenAIResponsesDialect,
    Reply,
)
from whole_kit import PRICE, Ended, World, differing, look_closely, reviewed, shell, use

DIALECTS = {
    "responses": ("openai", "gpt-5.2", OpenAIResponsesDialect),
    "chat": ("openai-chat", "gpt-5.2", OpenAIChatDialect),
    "anthropic": ("anthropic", "claude-sonnet-4-6", AnthropicDialect),
    "gemini": ("google", "gemini-3.8-flash", GeminiDialect),
}


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository with something broken, how it is mended, and the check that turns green."""

    make: Callable[[Path], Path]
    mend: dict[str, Any]
    path: str
    check: str
    program: str = "git"
    package: str = ""
    """What installs the program where it is missing."""
    subdir: str = ""
    workspace: tuple[tuple[str, Any], ...] = ()


def src_layout(folder: Path) -> Path:
    return make_repository(
        folder / "ledger",
        {
            "pyproject.toml": '[project]\nname = "ledger"\nversion = "1.0"\n',
            "src/ledger/__init__.py": "def total(values):\n    return sum(values) + 1\n",
            "tests/__init__.py": "import sys\nsys.path.insert(0, 'src')\n",
            "tests/test_total.py": (
                "import unittest\nfrom ledger import total\n\n\nclass TotalTest(unittest.TestCase):\n"
                "    def test_total(self):\n        self.assertEqual(total([1, 2]), 3)\n"
            ),
            ".gitignore": "__pycache__/\n",
        },
    )


def node(folder: Path) -> Path:
    return make_repository(
        folder / "slug",
        {
            "package.json": '{"name": "slug", "version": "1.0.0", "scripts": {"test": "node --test"}}\n',
            "slug.js": 'exports.slug = (text) => text.toLowerCase().replace(" ", "-");\n',
            "slug.test.js": (
                'const test = require("node:test");\nconst assert = require("node:assert");\n'
                'const { slug } = require("./slug");\n'
                'test("each blank", () => assert.equal(slug("A b c"), "a-b-c"));\n'
            ),
            ".gitignore": "node_modules/\n",
        },
    )


def rust(folder: Path) -> Path:
    """One file and a makefile: building it takes a fraction of what a whole crate does."""
    return make_repository(
        folder / "area",
        {
            "Makefile": "test:\n\trustc --test -C opt-level=0 -o target/area area.rs\n\t./target/area -q\n",
            "area.rs": (
                "pub fn area(width: u32, height: u32) -> u32 {\n    width + height\n}\n\n"
                "#[test]\nfn multiplies() {\n    assert_eq!(area(3, 4), 12);\n}\n"
            ),
            "target/.keep": "",
            ".gitignore": "/target/area\n",
        },
    )


def go(folder: Path) -> Path:
    """A module without dependencies, so that nothing has to be fetched."""
    return make_repository(
        folder / "clamp",
        {
            "go.mod": "module example.invalid/clamp\n\ngo 1.18\n",
            "clamp.go": (
                "package clamp\n\nfunc Clamp(value, low, high int) int {\n"
                "\tif value < low {\n\t\treturn high\n\t}\n"
                "\tif value > high {\n\t\treturn high\n\t}\n"
                "\treturn value\n}\n"
            ),
            "clamp_test.go": (
                'package clamp\n\nimport "testing"\n\nfunc TestClamp(t *testing.T) {\n'
                '\tif got := Clamp(1, 2, 3); got != 2 {\n\t\tt.Fatalf("got %d", got)\n\t}\n}\n'
            ),
        },
    )


def monorepo(folder: Path) -> Path:
    files = {
        "services/pay/pay.py": "def fee(amount):\n    return amount // 10\n",
        "services/pay/test_pay.py": (
            "import unittest\nfrom pay import fee\n\n\nclass FeeTest(unittest.TestCase):\n"
            "    def test_fee(self):\n        self.assertEqual(fee(100), 2)\n"
        ),
        "services/web/package.json": '{"scripts": {"test": "false"}}\n',
        "libs/go/go.mod": "module example.invalid/x\n",
        "Makefile": "test:\n\tfalse\n",
    }
    return make_repository(folder / "mono", files)


def uncommitted(folder: Path) -> Path:
    root = src_layout(folder)
    write(
        root, {"src/ledger/__init__.py": "def total(values):\n    return sum(values) + 1\n\n\nMINE = True\n"}
    )
    write(root, {"notes.txt": "mine\n", "staged.txt": "staged\n"})
    git(root, "add", "staged.txt")
    return root


MEND_TOTAL = {"relative_path": "src/ledger/__init__.py", "old": "sum(values) + 1", "new": "sum(values)"}
REPOSITORIES = {
    "src layout": Repository(src_layout, MEND_TOTAL, "src/ledger/__init__.py", "unittest"),
    "node": Repository(
        node,
        {"relative_path": "slug.js", "old": 'replace(" "', "new": 'replaceAll(" "'},
        "slug.js",
        "npm-test",
        "npm",
        "npm",
    ),
    "rust": Repository(
        rust,
        {"relative_path": "area.rs", "old": "width + height", "new": "width * height"},
        "area.rs",
        "make-test",
        "rustc",
        "rustc",
    ),
    "go": Repository(
        go,
        {"relative_path": "clamp.go", "old": "low {\n\t\treturn high", "new": "low {\n\t\treturn low"},
        "clamp.go",
        "go-test",
        "go",
        "golang-go",
    ),
    "monorepo": Repository(
        monorepo,
        {"relative_path": "services/pay/pay.py", "old": "// 10", "new": "// 50"},
        "services/pay/pay.py",
        "unittest",
        subdir="services/pay",
    ),
    "uncommitted": Repository(uncommitted, MEND_TOTAL, "src/ledger/__init__.py", "unittest"),
}


def environment_with(repository: Repository, home: Path) -> dict[str, str]:
    """PATH with the repository's program on it; on CI it is installed where it is missing."""
    found = _find(repository.program)
    if found is None and os.environ.get("CI"):
        _install(repository.package)
        found = _find(repository.program)
    if found is None:
        pytest.skip(f"{repository.program} isn't installed; the system's package is `{repository.package}`")
    return {"PATH": f"/usr/local/bin:/usr/bin:/bin:{found.parent}"}


def _install(package: str) -> None:
    """Some 20 s for each; Debian's rustc is the smallest compiled toolchain that it has."""
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", *words], check=True, timeout=600, env=quiet, capture_output=True)


def _find(program: str) -> Path | None:
    """The program itself: one of rustup's stand-ins would look for its settings in another home."""
    for folder in sorted(Path.home().glob(".rustup/toolchains/stable*/bin")):
        if (folder / program).is_file():
            return folder / program
    found = shutil.which(program)
    return Path(found) if found is not None else None


@pytest.mark.parametrize("name", REPOSITORIES)
async def test_it_is_mended(tmp_path: Path, name: str) -> None:
    """R18, R29: plan, work, checks and review over each wire: the check turns green, one file changes."""
    repository = REPOSITORIES[name]
    home = tmp_path.resolve() / "home"
    home.mkdir(mode=0o700)
    environment = environment_with(repository, home)
    root = repository.make(tmp_path.resolve())
    before, commits = look_closely(root), git(root, "log", "--format=%H")
    broken = (root / repository.path).read_bytes()
    with ExitStack() as fakes:
        served = {dialect: fakes.enter_context(_fake(dialect, repository)) for dialect in DIALECTS}
        world = World(
            root=root,
            home=home,
            fake=served["chat"],
            settings=_settings(served),
            environment=environment | {_key(dialect): fake.api_key for dialect, fake in served.items()},
            subdir=repository.subdir,
        )
        async with world.host() as host:  # one host for all: what it knows of the base serves each
            for dialect, (_, model, _) in DIALECTS.items():
                run = await host.start(world.request(model=f"{dialect}:{model}"))
                _is_mended(await Ended.of(host, run), repository, root, dialect)
                assert differing(before, look_closely(root)) == {repository.path}, dialect
                assert git(root, "log", "--format=%H") == commits, dialect
                (root / repository.path).write_bytes(broken)


def _fake(dialect: str, repository: Repository) -> FakeProvider:
    kind, _, make_dialect = DIALECTS[dialect]
    need_sdk(kind)
    replies: list[Reply] = reviewed(use("edit_file", **repository.mend), shell("git diff --stat"))
    return FakeProvider(replies, dialect=make_dialect())


def _settings(served: dict[str, FakeProvider]) -> dict[str, Any]:
    """A provider for each dialect, named by it."""
    return {
        "providers": {
            dialect: {"kind": DIALECTS[dialect][0], "base_url": fake.base_url, "api_key_env": _key(dialect)}
            for dialect, fake in served.items()
        },
        "prices": {f"{dialect}:{DIALECTS[dialect][1]}": dict(PRICE) for dialect in served},
    }


def _key(dialect: str) -> str:
    return f"KEY_OF_{dialect.upper()}"


def _is_mended(ended: Ended, repository: Repository, root: Path, dialect: str) -> None:
    assert ended.ending == ("completed", None, None), (dialect, ended.results)
    (check,) = ended.view.checks
    assert (check.id, check.exit, check.gate) == (repository.check, 0, "pass"), dialect
    assert check.base_exit not in (0, None), "it was red before"
    text = (root / repository.path).read_text()
    assert repository.mend["new"] in text, dialect
    assert repository.mend["old"] not in text, dialect
    assert ended.view.patch is not None
    assert (ended.view.patch.files, ended.view.patch.reviewed) == (1, True), dialect
    assert ended.bill.complete, dialect
