"""The pages on OpenAI's and Anthropic's clients do what they say."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from served_kit import ANSWER, Served, serve

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serve(tmp_path_factory.mktemp("pages")) as served:
        yield served


def run_page(name: str, served: Served) -> None:
    """Run a page's blocks one after the other, as a reader would: the host's address and key are put in."""
    names: dict[str, Any] = {"KEY": served.secret}
    for block in _BLOCK.findall((PAGES / name).read_text()):
        code = block.replace("http://127.0.0.1:7433", served.base_url)
        exec(compile(code, name, "exec"), names)
    names["client"].close()


def test_the_page_on_openai_clients(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """The vendor's quick-start works by changing base URL, key and model only, streamed or not."""
    run_page("use-openai-clients.md", served)
    assert capsys.readouterr().out == f"{ANSWER}\n{ANSWER}completed {ANSWER}\n"


def test_the_page_on_anthropic_clients(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """The same of the other vendor's."""
    run_page("use-anthropic-clients.md", served)
    first, rest = capsys.readouterr().out.split("\n", 1)
    assert first == ANSWER
    assert rest.startswith(ANSWER)
    assert int(rest.removeprefix(ANSWER)) > 0
