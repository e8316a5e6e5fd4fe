"""A reviewed run from request to delivered patch, against a provider over real HTTP."""

from __future__ import annotations

from whole_kit import MEND, World, differing, look_closely, reviewed, shell


async def test_a_reviewed_run_mends_the_repository(world: World) -> None:
    """S18, S20, S25: the reviewer's output is the result; only the reviewed bytes change."""
    world.fake.script(*reviewed(MEND, shell("python3 -m unittest -q")))
    before = look_closely(world.root)
    ended = await world.run()
    assert ended.ending == ("completed", None, None)
    assert ended.view.output == "It is mended."
    assert (world.root / "calc/__init__.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert differing(before, look_closely(world.root)) == {"calc/__init__.py"}
    ended.check_story()
    assert not world.fake.unused
