"""The program as a user gets it: a wheel, installed with its bytecode, an empty folder, an empty home."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from git_repository import git, write
from remit.testing import FakeProvider, OpenAIChatDialect
from whole_kit import CALC, MEND, MODEL, reviewed

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-0123456789abcdef0123456789"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed command. What it depends on is lent by the environment that runs the tests."""
    uv = Path(sys.executable).parent / "uv"
    if not uv.is_file():
        pytest.skip("the environment has no uv to install a wheel with")
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    place = folder / "venv"
    venv.create(place, with_pip=False)
    (own,) = (place / "lib").glob("python*/site-packages")
    (own / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = place / "bin" / "python"
    install = [str(uv), "pip", "install", "-q", "--no-deps", "--no-index", "--compile-bytecode"]
    subprocess.run(
        [*install, "--python", str(python), str(wheel)], check=True, capture_output=True, timeout=100
    )
    where = [str(python), "-I", "-c", "import remit; print(remit.__file__)"]
    found = subprocess.run(where, check=True, capture_output=True, text=True, timeout=60).stdout
    assert found.startswith(str(own)), "it is the installed one that is tried"
    return place / "bin" / "remit"


def start(
    program: Path, *arguments: str, folder: Path, home: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run it with next to nothing in the environment."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TMPDIR": str(folder), **more}
    return subprocess.run(
        [str(program), *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty one."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_the_demonstration_installed(program: Path, home: Path, tmp_path: Path) -> None:
    """All six claims hold; installing has put bytecode beside the bundled repository's files."""
    (tmp_path / "empty").mkdir()
    done = start(program, "demo", folder=tmp_path / "empty", home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("^  ✓ ", done.stdout, re.MULTILINE)) == 6


def test_a_run_installed(program: Path, home: Path, tmp_path: Path) -> None:
    """The reviewer's answer on stdout, the reviewed bytes in the tree, against a provider over real HTTP."""
    root = tmp_path / "calc"
    root.mkdir()
    write(root, CALC)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    with FakeProvider(reviewed(MEND), dialect=OpenAIChatDialect(api_key=KEY)) as fake:
        settings = home / ".config" / "remit"
        settings.mkdir(parents=True)
        (settings / "remit.toml").write_text(
            f'[providers.fake]\nkind = "openai-compatible"\nbase_url = "{fake.base_url}"\n'
            f'api_key_env = "FAKE_KEY"\n[prices."{MODEL}"]\nfree = true\n'
        )
        done = start(program, "run", "Mend it", "--model", MODEL, folder=root, home=home, FAKE_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "It is mended.\n"
    assert "a + b" in (root / "calc" / "__init__.py").read_text()
    shown = start(program, "show", "--json", folder=root, home=home)
    assert json.loads(shown.stdout)["delivery"]["status"] == "delivered"
