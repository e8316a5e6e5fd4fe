"""The work registry: observation tokens and pages."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from remit.contract import WorkKind
from remit.work import ObservationToken, ObservedStage, PageEntry, WorkRegistry, WorkSpec
from work_kit import Kit


def _token(kit: Kit, work_id: str = "a", *, session: str = "s") -> ObservationToken:
    token = kit.registry.observation_token(session, work_id)
    assert token is not None
    return token


def _observe(kit: Kit, token: ObservationToken, stage: ObservedStage) -> ObservationToken:
    fresh = kit.registry.observe(token, stage)
    assert fresh is not None
    return fresh


def _stage(kit: Kit, work_id: str = "a") -> ObservedStage | None:
    found = {entry.work_id: entry for entry in kit.registry.observation_page("s").entries}
    return found[work_id].stage


def test_token_exists_only_for_registered_work() -> None:
    """B20: none is made for what is missing or has ended."""
    kit = Kit()
    assert kit.registry.observation_token("s", "a") is None
    kit.add("a")
    assert kit.registry.observation_token("other", "a") is None
    assert kit.registry.observation_token("s", "a") is not None
    kit.registry.finish("s", "a")
    assert kit.registry.observation_token("s", "a") is None


def test_new_item_has_no_stage_and_no_elapsed_time() -> None:
    """B21: also when time passes."""
    kit = Kit()
    kit.add("a")
    kit.clock.pass_ms(500)
    assert kit.registry.observation_page("s").entries == (
        PageEntry(work_id="a", stage=None, elapsed_ms=None, cancelled=False),
    )


def test_each_observation_gives_a_token_that_supersedes_the_old_one() -> None:
    """B22: through all four stages."""
    kit = Kit()
    kit.add("a")
    token = _token(kit)
    for stage in ("dispatch", "receipt_wait", "cleanup", "retirement"):
        old, token = token, _observe(kit, token, ObservedStage(stage))
        assert token != old
        assert kit.registry.observe(old, ObservedStage.DISPATCH) is None
        assert _stage(kit) == stage


def test_observation_survives_cancellation() -> None:
    """B23, B24: the stage is kept, time goes on, the flag is shown, and a valid token can still advance."""
    kit = Kit()
    kit.add("a")
    token = _observe(kit, _token(kit), ObservedStage.DISPATCH)
    kit.clock.pass_ms(40)
    kit.registry.cancel("s", "a")
    assert kit.registry.observation_page("s").entries == (
        PageEntry(work_id="a", stage=ObservedStage.DISPATCH, elapsed_ms=40, cancelled=True),
    )
    assert kit.registry.observe(token, ObservedStage.RETIREMENT) is not None
    assert _stage(kit) is ObservedStage.RETIREMENT


def test_used_token_changes_nothing() -> None:
    """B25, B28: a stale revision gives none, and neither stage nor clock move."""
    kit = Kit()
    kit.add("a")
    used = _token(kit)
    _observe(kit, used, ObservedStage.DISPATCH)
    kit.clock.pass_ms(10)
    assert kit.registry.observe(used, ObservedStage.CLEANUP) is None
    entry = kit.registry.observation_page("s").entries[0]
    assert (entry.stage, entry.elapsed_ms) == (ObservedStage.DISPATCH, 10)


def test_registering_again_kills_every_earlier_token() -> None:
    """B26, B27: the owner is another one, and it starts without a stage."""
    kit = Kit()
    kit.add("a")
    first = _token(kit)
    second = _observe(kit, first, ObservedStage.DISPATCH)
    kit.add("a")
    assert _stage(kit) is None
    for token in (first, second):
        assert kit.registry.observe(token, ObservedStage.CLEANUP) is None
    assert _stage(kit) is None
    held = _token(kit)
    owner, _ = held.unseal()
    kit.add("a")
    assert owner is not None
    assert kit.registry.observe(held, ObservedStage.CLEANUP) is None, (
        "also while somebody holds the old owner"
    )
    assert kit.registry.take_observed(held) is None


def test_after_finish_nothing_is_observed() -> None:
    """B29: observing gives none and pages are empty; the id's next registration isn't reached either."""
    kit = Kit()
    kit.add("a")
    token = _token(kit)
    owner, _ = token.unseal()
    assert len(kit.registry.observation_page("s").entries) == 1
    kit.registry.finish("s", "a")
    assert owner is not None, "held, so that it isn't gone by itself"
    assert kit.registry.observe(token, ObservedStage.DISPATCH) is None
    assert kit.registry.observation_page("s").entries == ()
    kit.add("a")
    assert kit.registry.observe(token, ObservedStage.DISPATCH) is None


def test_retirement_belongs_to_the_owner() -> None:
    """B30: a replaced owner's token removes nothing."""
    kit = Kit()
    kit.add("a")
    token = _token(kit)
    owner, _ = token.unseal()
    assert owner is not None, "held, so that it isn't gone by itself"
    kit.add("a")
    assert kit.registry.take_observed(token) is None
    assert kit.registry.active_ids_for_session("s") == ("a",)


def test_retirement_works_once() -> None:
    """B31: by the current token, and then by none, not even an older one."""
    kit = Kit()
    kit.add("a")
    older = _token(kit)
    current = _observe(kit, older, ObservedStage.DISPATCH)
    owner, _ = current.unseal()
    assert owner is not None, "held, so that it isn't gone by itself"
    spec = kit.registry.take_observed(current)
    assert spec is not None
    assert spec.work_id == "a"
    assert kit.registry.take_observed(current) is None
    assert kit.registry.take_observed(older) is None


def test_retirement_takes_an_older_token_of_the_same_owner() -> None:
    """B32: the revision doesn't matter, and the right spec comes out."""
    kit = Kit()
    kit.add("a")
    older = _token(kit)
    _observe(kit, older, ObservedStage.DISPATCH)
    guard = object()
    kit.add("b", guard=guard)
    other = _token(kit, "b")
    spec = kit.registry.take_observed(older)
    assert spec is not None
    assert spec.work_id == "a"
    taken = kit.registry.take_observed(other)
    assert taken is not None
    assert taken.guard is guard


@pytest.mark.parametrize(
    ("asked", "given"), [(-5, 1), (0, 1), (1, 1), (127, 127), (128, 128), (129, 128), (10**9, 128)]
)
def test_page_holds_1_to_128_entries(asked: int, given: int) -> None:
    """B33: whatever is asked for."""
    kit = Kit()
    for number in range(200):
        kit.add(f"w{number:03d}")
    assert len(kit.registry.observation_page("s", limit=asked).entries) == given


def test_page_holds_one_session() -> None:
    """B34: foreign sessions are invisible, and so is one that doesn't exist."""
    kit = Kit()
    kit.add("a", session="s1")
    kit.add("b", session="s2")
    page = kit.registry.observation_page("s1")
    assert [entry.work_id for entry in page.entries] == ["a"]
    assert kit.registry.observation_page("unknown").entries == ()


def test_pages_are_ordered_and_their_cursor_is_exclusive() -> None:
    """B35, B36: read to the end they hold each id once, in order; `next_after` only when more is there."""
    kit = Kit()
    for number in (3, 1, 4, 0, 2):
        kit.add(f"w{number}")
    first = kit.registry.observation_page("s", limit=2)
    assert [entry.work_id for entry in first.entries] == ["w0", "w1"]
    assert first.next_after == "w1"
    second = kit.registry.observation_page("s", after=first.next_after, limit=2)
    assert [entry.work_id for entry in second.entries] == ["w2", "w3"]
    last = kit.registry.observation_page("s", after=second.next_after, limit=2)
    assert [entry.work_id for entry in last.entries] == ["w4"]
    assert last.next_after is None
    exact = kit.registry.observation_page("s", limit=5)
    assert exact.next_after is None
    assert kit.registry.observation_page("s", after="w4").entries == ()


def test_page_shows_four_fields() -> None:
    """B37: no label, argument, durable row or foreign owner."""
    assert set(PageEntry.__slots__) == {"work_id", "stage", "elapsed_ms", "cancelled"}


def test_elapsed_counts_from_the_latest_observation() -> None:
    """B43, B60: not from registration; the same stage again restarts it; a page reads the clock once."""
    kit = Kit()
    kit.add("a")
    kit.add("b")
    kit.clock.pass_ms(100)
    token = _observe(kit, _token(kit), ObservedStage.RETIREMENT)
    kit.clock.pass_ms(30)
    token = _observe(kit, token, ObservedStage.RETIREMENT)
    kit.clock.pass_ms(7)
    assert kit.registry.observation_page("s").entries[0].elapsed_ms == 7
    token = _observe(kit, token, ObservedStage.DISPATCH)
    assert _stage(kit) is ObservedStage.DISPATCH
    reads = kit.clock.reads
    kit.registry.observation_page("s")
    assert kit.clock.reads == reads + 1
    kit.registry.snapshot("s")
    assert kit.clock.reads == reads + 2
    kit.add("a", session="other")
    kit.registry.active_all()
    assert kit.clock.reads == reads + 3


def test_elapsed_saturates() -> None:
    """B43: a clock that goes wild gives neither a negative length nor an endless one."""
    kit = Kit()
    kit.add("a")
    _observe(kit, _token(kit), ObservedStage.DISPATCH)
    kit.clock.pass_ms(-10_000)
    assert kit.registry.observation_page("s").entries[0].elapsed_ms == 0
    kit.clock.seconds = 1e300
    assert kit.registry.observation_page("s").entries[0].elapsed_ms == 2**53 - 1


def test_observation_is_neither_authority_nor_history() -> None:
    """B44: nothing of an ended item is left, and observing keeps no guard alive."""
    import gc
    import weakref

    class Guard:
        pass

    kit = Kit()
    guard = Guard()
    alive = weakref.ref(guard)
    kit.add("a", guard=guard)
    del guard
    token = _observe(kit, _token(kit), ObservedStage.DISPATCH)
    kit.registry.finish("s", "a")
    gc.collect()
    assert alive() is None
    assert kit.registry.observe(token, ObservedStage.CLEANUP) is None
    kit.add("a")
    assert _stage(kit) is None


def test_capturing_a_token_changes_nothing() -> None:
    """B59: captures and copies of one revision are equal, the first use kills the rest, nothing is read."""
    kit = Kit()
    kit.add("a")
    first, second = _token(kit), _token(kit)
    duplicate = copy.copy(first)
    assert first == second == duplicate
    assert len({first, second, duplicate}) == 1
    assert _stage(kit) is None
    for secret in ("s", "a", "revision"):
        assert f"'{secret}'" not in repr(first)
    assert not [name for name in dir(first) if not name.startswith("_") and name != "unseal"]
    fresh = _observe(kit, second, ObservedStage.DISPATCH)
    assert fresh != second
    assert fresh == _token(kit)
    assert kit.registry.observe(first, ObservedStage.CLEANUP) is None
    assert kit.registry.observe(duplicate, ObservedStage.CLEANUP) is None
    kit.add("a")
    assert _token(kit) != first


def test_cursor_whose_item_is_gone_still_works() -> None:
    """B61: pages are live; what was removed is skipped, what came behind the cursor needs a fresh scan."""
    kit = Kit()
    for name in ("a", "b", "c"):
        kit.add(name)
    first = kit.registry.observation_page("s", limit=2)
    assert first.next_after == "b"
    kit.registry.finish("s", "b")
    kit.add("aa")
    kit.add("bb")
    rest = kit.registry.observation_page("s", after=first.next_after)
    assert [entry.work_id for entry in rest.entries] == ["bb", "c"]
    fresh = kit.registry.observation_page("s")
    assert [entry.work_id for entry in fresh.entries] == ["a", "aa", "bb", "c"]


INNER = (
    "ObservationToken",
    "Observer",
    "Observable",
    "observation_token",
    "take_observed",
    "observation_page",
)


@pytest.mark.parametrize("name", INNER)
def test_observation_is_for_the_servers_own_modules(name: str) -> None:
    """B73: who embeds a host isn't given it; doors, clients and commands don't reach for it."""
    import remit

    assert name not in remit.__all__
    for room in ("api", "client", "cli"):
        for path in (Path(remit.__file__).parent / room).rglob("*.py"):
            assert name not in path.read_text(encoding="utf-8").replace("ObservationPage", ""), path


def test_observation_stays_inside_and_registering_is_the_outer_surface() -> None:
    """B73: a listing gives no token, and no listing, registering, routing or proof needs one."""
    kit = Kit()
    spec = WorkSpec(work_id="a", kind=WorkKind.TOOL, label="", handle=kit.fired.handle())
    kit.registry.register("s", spec)
    for found in (kit.registry.snapshot("s"), kit.registry.active_all(), kit.registry.observation_page("s")):
        assert "Token" not in repr(found)
    asked = [
        name
        for name, method in vars(WorkRegistry).items()
        if callable(method) and "ObservationToken" in str(method.__annotations__)
    ]
    assert asked == ["observation_token", "observe", "take_observed"]
