"""The profile for macOS: what it says, and that no path can say more. It was never run on a Mac."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.workspaces._seatbelt import seatbelt_profile


def profile(**changes: object) -> list[str]:
    given: dict[str, object] = {
        "writable": [Path("/private/tmp/tree")],
        "readable": [Path("/opt/python")],
        "masked": [Path("/opt/python/pip.conf")],
        "network": False,
        **changes,
    }
    return seatbelt_profile(**given).splitlines()  # type: ignore[arg-type] - any of its arguments


def test_everything_is_denied_but_what_is_named() -> None:
    """What is masked is denied after what allows it, since the last word holds."""
    lines = profile()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    allowed = next(number for number, line in enumerate(lines) if '"/opt/python")' in line)
    denied = next(number for number, line in enumerate(lines) if "pip.conf" in line)
    assert allowed < denied
    assert lines[denied].startswith("(deny file-read* file-write* ")
    assert '(allow file-read* file-write* (subpath "/private/tmp/tree"))' in lines
    assert lines[-1] == "(deny network*)"
    assert profile(network=True)[-1] == "(allow network*)"


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a\nb", "/a\0b"])
def test_a_path_that_would_mean_another_is_refused(path: str) -> None:
    """Neither steps nor control characters get into a profile."""
    with pytest.raises(ValueError, match=r"."):
        profile(readable=[Path(path)])


def test_a_quote_in_a_path_stays_in_the_path() -> None:
    """Nobody ends the string, and with it the rule, by a folder's name."""
    (line,) = [
        line for line in profile(readable=[Path('/x") (allow default) ("')]) if "allow default" in line
    ]
    assert '\\") (allow default) (\\""' in line
