"""Hosted execution against a model that says in a few lines what must come out."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from examples_kit import examples
from hosted_kit import EXECUTION, NOT_ADMITTED, UNPROVEN, USAGE, Hosted
from remit.contract import RunStatus
from remit.errors import Draining, StorageError
from remit.testing._fake_operations import FakeBarriers, FakeOperations, sample_usage

Failure = Literal["ours", "theirs", "cancelled"]
LIVE = (RunStatus.QUEUED, RunStatus.WORKING, RunStatus.SETTLING)
ENDED = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.INDETERMINATE)
OPERATIONS = ("create", "start", "query", "stop", "usage")
REASON = "provider/auth"
BILLS: dict[str, tuple[dict[str, int], str | None]] = {
    "whole": ({}, None),
    "unpriced": ({"priced": 0, "unpriced": 1}, None),
    "old": ({"legacy_records": 1}, None),
    "unreadable": ({"unreadable_records": 2, "pending_repairs": 1, "partial": 1}, "unreadable_usage_record"),
    "behind": ({"pending_repairs": 1, "partial": 1, "missing": 1}, "pending_usage_repair"),
    "partial": ({"partial": 1, "missing": 3, "attempts": 5}, "partial_attempt_usage"),
    "missing": ({"missing": 1, "attempts": 2}, "missing_attempt_usage"),
    "silent": ({"attempts": 2}, "missing_attempt_usage"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the operations and the caller do."""

    live: tuple[RunStatus, ...]
    """What the first queries find."""
    end: RunStatus
    stopped: RunStatus
    bill: str
    fails: dict[str, Failure] = field(default_factory=dict[str, Failure])
    blocked: bool = False
    abort: tuple[str, int] | None = None
    """While this is asked or waited for, for the so-manieth time; `outset`: before anything."""
    single_run: bool = True
    barrier_fails: Failure | None = None
    """What the barrier of all residencies raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What must come out."""

    result: dict[str, Any]
    asked: list[str]
    waited: list[str]
    drains: int


class Model:
    """Walks through a script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[str] = []
        self.waited: list[str] = []
        self.aborted = script.abort is not None and script.abort[0] == "outset"
        self.failed = False

    def expected(self) -> Expected:
        result = self._result()
        drains = int(self.script.single_run and (self.aborted or self.failed))
        return Expected(result=result, asked=self.asked, waited=self.waited, drains=drains)

    def _ask(self, name: str, log: list[str]) -> Failure | None:
        log.append(name)
        if self.script.abort == (name, log.count(name)):
            self.aborted = True
        return self.script.fails.get(name)

    def _unproven(self) -> dict[str, Any]:
        self.failed = True
        self._ask("all", self.waited)
        return UNPROVEN

    def _not_admitted(self) -> dict[str, Any]:
        self._ask("all", self.waited)
        return NOT_ADMITTED

    def _result(self) -> dict[str, Any]:
        if self.aborted:
            return self._not_admitted()
        if self._ask("create", self.asked):
            return self._unproven()
        if self.aborted:
            return self._not_admitted()
        if self._ask("start", self.asked) or self.script.blocked:
            return self._unproven()
        return self._started()

    def _started(self) -> dict[str, Any]:
        if self._query_fails():
            return self._unproven()
        status, barrier = self.script.end, "execution"
        if self.aborted:
            if self._ask("stop", self.asked):
                return self._unproven()
            status, barrier = self.script.stopped, "all"
        self._ask(barrier, self.waited)
        if barrier == "all" and self.script.barrier_fails:
            return self._unproven()
        if status is RunStatus.INDETERMINATE:
            return {"id": EXECUTION, "kind": "indeterminate", "failure_reason": REASON}
        if self._ask("usage", self.asked):
            return self._unproven()
        return self._settled(status)

    def _query_fails(self) -> bool:
        """Ask until there is an end or an abort."""
        for _ in (*self.script.live, self.script.end):
            if self.aborted:
                break
            failure = self._ask("query", self.asked)
            # What comes of a query that is given up is nobody's, but a fault is a fault.
            if failure is not None and not (failure == "cancelled" and self.aborted):
                return True
        return False

    def _settled(self, status: RunStatus) -> dict[str, Any]:
        cause = BILLS[self.script.bill][1]
        if cause is not None:
            return {"id": EXECUTION, "kind": "indeterminate", "failure_reason": f"usage/{cause}"}
        cost = 0.25 if self.script.bill == "whole" else None
        settled = {
            "id": EXECUTION,
            "kind": "settled",
            "status": status.value,
            "usage": USAGE,
            "cost_usd": cost,
        }
        return settled | ({"failure_reason": REASON} if status is RunStatus.FAILED else {})


SCRIPTS = st.builds(
    Script,
    live=st.lists(st.sampled_from(LIVE), max_size=3).map(tuple),
    end=st.sampled_from(ENDED),
    stopped=st.sampled_from(ENDED),
    bill=st.sampled_from(["whole", *BILLS]),
    fails=st.just({})
    | st.dictionaries(
        st.sampled_from(OPERATIONS), st.sampled_from(("ours", "theirs", "cancelled")), max_size=2
    ),
    blocked=st.sampled_from((False, False, False, True)),
    abort=st.none()
    | st.tuples(st.sampled_from(("outset", *OPERATIONS, "execution", "all")), st.integers(1, 3)),
    single_run=st.booleans(),
    barrier_fails=st.sampled_from((None, None, "theirs", "cancelled")),
)
FAILURES: dict[Failure, BaseException] = {
    "ours": StorageError("a secret of ours"),
    "theirs": RuntimeError("a secret of theirs"),
    "cancelled": asyncio.CancelledError("a secret of the loop's"),
}


@examples(300)
@given(SCRIPTS)
def test_hosted_execution_does_what_the_model_says(script: Script) -> None:
    """M15, M20, M24, M36: result, operations, barriers and drains, whatever is played and aborted when."""
    operations = FakeOperations(
        *script.live,
        script.end,
        stopped=script.stopped,
        failure_class=REASON,
        usage=sample_usage(**BILLS[script.bill][0]),
    )
    operations.failures = {name: FAILURES[failure] for name, failure in script.fails.items()}
    operations.blocked = Draining("no more") if script.blocked else None
    barriers = FakeBarriers()
    barriers.failure = FAILURES[script.barrier_fails] if script.barrier_fails is not None else None

    async def main() -> dict[str, Any]:
        hosted = Hosted(operations=operations, barriers=barriers, single_run=script.single_run)
        if script.abort is not None and script.abort[0] == "outset":
            hosted.scope.abort()
        elif script.abort is not None:
            hosted.abort_on(script.abort[0], time=script.abort[1])
        result = await hosted.result()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something was left behind"
        return result

    logging.disable(logging.CRITICAL)
    try:
        result = asyncio.run(main())
    finally:
        logging.disable(logging.NOTSET)
    expected = Model(script).expected()
    assert result == expected.result
    assert "secret" not in str(result)
    assert operations.names == expected.asked
    assert barriers.waited == expected.waited
    assert barriers.drains == expected.drains
