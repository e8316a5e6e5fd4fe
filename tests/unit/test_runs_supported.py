"""What this version can't do yet is refused, never ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remit.config import load_config
from remit.contract import RunRequest
from remit.errors import ConfigError, InvalidRequest
from remit.runs import refuse_later

LATER: list[tuple[dict[str, Any], str]] = [
    ({"webhook": "https://example.org/x"}, "webhook"),
]


@pytest.mark.parametrize(("body", "param"), LATER)
def test_a_request_for_more_is_refused(body: dict[str, Any], param: str) -> None:
    """R55: a field that is accepted is honoured; one that can't be is refused, and named."""
    with pytest.raises(InvalidRequest) as caught:
        refuse_later(RunRequest.model_validate({"prompt": "x", **body}))
    assert caught.value.fields["param"] == param


def test_plain_requests_pass() -> None:
    """What can be done isn't refused; a session of the run's own id is that run's session."""
    refuse_later(RunRequest(prompt="x", id="a", session_id="a"))
    refuse_later(RunRequest(prompt="x", continues="a"))


SETTINGS = [
    '[bindings.a]\ndelegate = true\nprofile = "direct"\n',
    '[[nodes.local.workspaces]]\nref = "a"\nroot = "."\nisolation = "in_place"\n',
]


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_for_more_are_refused(tmp_path: Path, text: str) -> None:
    """R55: a setting that is accepted is honoured."""
    (tmp_path / "remit.toml").write_text(text)
    with pytest.raises(ConfigError):
        load_config(environment={"HOME": str(tmp_path)}, folder=tmp_path)
