"""What this version can't do yet is refused, never ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.config import load_config
from remit.errors import ConfigError

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
