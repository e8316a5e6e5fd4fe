"""Runs one stage: puts its parts together, and leaves its record whole however it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remit.contract import ToolSpec
from remit.events import NewEvent
from remit.models import ModelPool
from remit.primitives import Clock, Ids
from remit.stages._answering import answer_plainly
from remit.stages._answers import SHAPES
from remit.stages._asking import Asker
from remit.stages._calls import ToolRound
from remit.stages._conversation import Conversation
from remit.stages._fitting import FittingAsker
from remit.stages._ledger import StageLedger, WorkItems
from remit.stages._log import StageLog
from remit.stages._loop import StageLoop
from remit.stages._nearing import NearingLimits, near_already
from remit.stages._notices import limit_near
from remit.stages._ports import Journal, Partial, StageAnswer, StageInput, Tools
from remit.stages._prompts import answer_messages, first_messages
from remit.stages._room import Room
from remit.usage import Budget, WorkingTime


class StageRunner:
    """Runs stages of one run.

    Args:
        pool: Who is asked.
        tools: The run's hands; None without a workspace.
        journal: The run's log.
        registry: Where attempts are registered, below the stage's own item.
        budget: What the run may spend.
        clock: Its monotonic time measures the stage.
        ids: Gives ids to tool calls that came without one, or with one twice.
        working: The run's stopwatch, which stands still while an attempt waits; None: nobody asks.
        take_messages: What the caller has said since it was last asked; asked before each round.
    """

    def __init__(
        self,
        *,
        pool: ModelPool,
        tools: Tools | None,
        journal: Journal,
        registry: WorkItems,
        budget: Budget,
        clock: Clock,
        ids: Ids,
        working: WorkingTime | None = None,
        take_messages: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._pool = pool
        self._tools = tools
        self._journal = journal
        self._registry = registry
        self._budget = budget
        self._clock = clock
        self._ids = ids
        self._working = working
        self._take_messages = take_messages

    async def run(
        self,
        stage: StageInput,
        *,
        partial: Partial | None = None,
        opening: Sequence[NewEvent] = (),
        remaining_s: Callable[[], float | None] = lambda: None,
    ) -> StageAnswer:
        """Run a stage to its answer; its end goes on record with what the run does next.

        Args:
            stage: Everything that it starts from.
            partial: Filled with what there is so far, for whoever has to tell of a stage that failed.
            opening: Facts, such as `stage.started`, that are stored in one step with the first attempt's.
            remaining_s: Seconds that stage and run have left, the nearer of the two; None: no end.

        Raises:
            StageFailure: It gave no valid answer.
            LimitReached: Its tool rounds, or the run's tokens or money, are used up.
            ProviderError: The provider failed for good, or its replies can't be used.
            NodeError: The node is lost, or can't open the checkout.

        Cancellation: what is in flight is stopped and recorded before the cancel goes on; every call of
        the transcript has a result then, and every attempt and tool call that began has its end.
        """
        log = StageLog(self._journal, stage_id=stage.stage_id)
        log.add(*opening)
        conversation, loop = self._assemble(stage, log, partial or Partial(), remaining_s)
        try:
            return await loop.run()
        except BaseException:
            conversation.make_whole(loop.known_results, begun=loop.begun_calls)
            await log.flush_at_failure()
            raise

    async def answer(
        self,
        stage: StageInput,
        *,
        partial: Partial | None = None,
        opening: Sequence[NewEvent] = (),
        remaining_s: Callable[[], float | None] = lambda: None,
    ) -> StageAnswer:
        """One plain answer, by one request without tools; arguments, errors and cancellation as of `run`."""
        log, partial = StageLog(self._journal, stage_id=stage.stage_id), partial or Partial()
        log.add(*opening)
        conversation = Conversation(log, self._ids, head=answer_messages(stage))
        asker = self._asker(stage, self._ledger(stage, log), partial, remaining_s)
        try:
            return await answer_plainly(
                stage, asker=asker, conversation=conversation, log=log, partial=partial
            )
        except BaseException:
            conversation.make_whole()
            await log.flush_at_failure()
            raise

    def _assemble(
        self, stage: StageInput, log: StageLog, partial: Partial, remaining_s: Callable[[], float | None]
    ) -> tuple[Conversation, StageLoop]:
        specs = offered_tools(stage) if self._tools is not None else ()
        ledger = self._ledger(stage, log)
        notes = [
            limit_near(near.kind, near.value, near.cap) for near in near_already(stage, self._budget.subtree)
        ]
        conversation = Conversation(log, self._ids, head=first_messages(stage, note="\n".join(notes) or None))
        hands = ToolRound(stage, self._tools, log, specs=specs, partial=partial, clock=self._clock)
        asker = self._asker(stage, ledger, partial, remaining_s)
        readable = any(spec.name == "read_output" for spec in specs)
        loop = StageLoop(
            stage,
            specs=specs,
            asker=FittingAsker(asker, conversation, room=Room(self._pool), readable=readable),
            hands=hands,
            conversation=conversation,
            ledger=ledger,
            log=log,
            nearing=NearingLimits(stage, clock=self._clock, remaining_s=remaining_s, working=self._working),
            partial=partial,
            take_messages=self._take_messages,
        )
        return conversation, loop

    def _ledger(self, stage: StageInput, log: StageLog) -> StageLedger:
        return StageLedger(stage, log, items=self._registry, budget=self._budget, working=self._working)

    def _asker(
        self,
        stage: StageInput,
        ledger: StageLedger,
        partial: Partial,
        remaining_s: Callable[[], float | None],
    ) -> Asker:
        return Asker(stage, self._pool, ledger, self._journal, partial=partial, remaining_s=remaining_s)


def offered_tools(stage: StageInput) -> tuple[ToolSpec, ...]:
    """The workspace tools that a stage gets: planning only those that read, work and review all of them.

    What an MCP server says of its own tools is no proof, so planning gets none of those.
    """
    submit = SHAPES[stage.kind].tool
    return tuple(
        spec
        for spec in stage.tools
        if (stage.kind != "plan" or (spec.effect == "read" and spec.plugin is None)) and spec.name != submit
    )
