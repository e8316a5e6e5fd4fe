"""What `remit doctor --sandbox` makes of the attacks: a table, names, an exit code to be believed."""

from __future__ import annotations

import pytest
from rich.text import Text

from remit.cli._attacking import Level, conclude, explain
from remit.testing.attacks import ATTACKS, GROUPS, KNOWN_OPEN, Tried, applies

NAMES = [attack.name for attack in ATTACKS if applies(attack)]


def level(name: str = "bubblewrap", problem: str | None = None, **verdicts: str) -> Level:
    made = Level(name, problem)  # type: ignore[arg-type] - one of the levels' names
    if problem is None:
        made.tried = {
            attack: Tried(attack, verdicts.get(attack, "held"), 1)  # type: ignore[arg-type] - one of the verdicts
            for attack in NAMES
        }
    return made


def told(*levels: Level, default: str = "bubblewrap") -> tuple[int, str]:
    lines: list[str] = []

    def show(text: Text) -> None:
        lines.append(text.plain)

    for one in levels:
        explain(one, show)
    return conclude(default, list(levels), show), "\n".join(lines)  # type: ignore[arg-type] - one of the levels' names


def test_all_held_is_zero() -> None:
    """Every attack was tried and stopped."""
    assert told(level()) == (0, "The sandbox of a run here (bubblewrap) holds.")


def test_one_that_got_through_is_named_and_fails() -> None:
    """One is enough."""
    code, text = told(level(read_home="open"))
    assert code == 1
    assert "GOT THROUGH: read_home" in text
    assert "doesn't hold" in text


def test_not_tried_isnt_held() -> None:
    """What wasn't tried, or never reported, isn't called stopped."""
    code, text = told(level(tcp="not tried"))
    assert (code, "not tried in the time: tcp" in text) == (1, True)
    silent = level()
    del silent.tried["tcp"]
    assert told(silent)[0] == 1


def test_the_other_level_doesnt_decide() -> None:
    """The exit code is about the level that a run would use."""
    assert told(level(), level("landlock", read_home="open"))[0] == 0
    assert told(level(problem="no namespaces"), level("landlock"), default="landlock")[0] == 0


def test_what_a_level_says_that_it_leaves_open_is_told_apart() -> None:
    """Landlock can't hide the machine's processes; that is told, and no news."""
    code, text = told(level("landlock", see_victim="open", fork_bomb="open"), default="landlock")
    assert code == 0
    assert "left open, as is said: see_victim, fork_bomb" in text


@pytest.mark.parametrize("default", ["external", "none"])
def test_no_level_of_ours_is_no_success(default: str) -> None:
    """Where the container is the boundary, or nothing is, there is nothing that could hold."""
    code, text = told(level(), default=default)
    assert code == 1
    assert "nothing of Remit's holds" in text


def test_groups_and_known_open_attacks_are_in_the_catalog() -> None:
    """Each attack stands in one group; a name that is known to be open exists."""
    grouped = [attack.name for group in GROUPS.values() for attack in group]
    assert sorted(grouped) == sorted(attack.name for attack in ATTACKS)
    assert len(set(grouped)) == len(grouped)
    for names in KNOWN_OPEN.values():
        assert names <= set(grouped)
