"""The rounds of one stage, to its answer.

ask ──> an answer that is valid ────────────────────────────────────────> done
 ^  ├─> an answer that isn't: told why, `max_corrections` times, then ──> invalid_output
 │  ├─> nothing: told once, as a correction, then ──────────────────────> provider/empty_result
 │  ├─> cut by the provider: told, three times, then ───────────────────> provider/cut
 │  ├─> withheld by the filter or the model ────────────────────────────> provider/content_filter, refusal
 │  └─> tool calls: done
 └──────┘

One last request, without tools, is made when `max_tool_rounds` are used up (without an answer then:
budget/tool_rounds), when what is left of tokens or money is enough for the answer alone (budget/tokens,
budget/cost), and when one call has failed alike in five rounds (invalid_output).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, assert_never

from remit.contract import StageCompleted, ToolSpec
from remit.errors import LimitReached, ProviderError
from remit.events import NewEvent
from remit.models import AssistantMessage, Finish, ModelReply, ModelRequest, ToolCallBlock, ToolResult
from remit.stages import _notices as notices
from remit.stages._answers import is_blank, submit_tool
from remit.stages._calls import CallOutcome, ToolRound
from remit.stages._conversation import Conversation
from remit.stages._fitting import FittingAsker
from remit.stages._ledger import StageLedger
from remit.stages._log import StageLog
from remit.stages._nearing import NearingLimits
from remit.stages._ports import Partial, StageAnswer, StageFailure, StageInput
from remit.stages._prompts import needs_evidence
from remit.stages._repeats import ENDS_AT, TOLD_AT, FailingCalls
from remit.stages._replies import (
    Answered,
    CutShort,
    Empty,
    Meaning,
    NotValid,
    ToolsAsked,
    Withheld,
    read_reply,
)

CUTS_FORGIVEN: Final = 3
"""How often a stage is told that its reply was cut by the provider's output limit."""


class StageLoop:
    """Asks, does what is asked for, and asks again."""

    def __init__(
        self,
        stage: StageInput,
        *,
        specs: Sequence[ToolSpec],
        asker: FittingAsker,
        hands: ToolRound,
        conversation: Conversation,
        ledger: StageLedger,
        log: StageLog,
        nearing: NearingLimits,
        partial: Partial,
        take_messages: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._stage = stage
        self._specs = tuple(specs)
        self._submit = submit_tool(stage.kind)
        self._asker = asker
        self._hands = hands
        self._conversation = conversation
        self._ledger = ledger
        self._log = log
        self._nearing = nearing
        self._partial = partial
        self._take_messages = take_messages
        self._failing = FailingCalls()
        self._corrections_left = stage.limits.max_corrections
        self._cuts = 0
        self._nudged = False
        self._rounds = 0
        self._tool_rounds = 0
        self._refused: dict[str, ToolResult] = {}
        self._closing: LimitReached | StageFailure | None = None
        """Why the next reply must be the answer, and how the stage ends when it isn't."""

    @property
    def known_results(self) -> tuple[ToolResult, ...]:
        """The results of the latest reply's calls so far, also when the rest was cut off."""
        return (*self._refused.values(), *self._hands.known)

    @property
    def begun_calls(self) -> Collection[str]:
        """Ids of the calls that were handed to the node; any other of the stage has done nothing."""
        return self._hands.begun

    async def run(self) -> StageAnswer:
        """Go round until there is a valid answer; it goes on record with what the run does next.

        Raises:
            StageFailure: It gave no valid answer.
            LimitReached: Its tool rounds, or the run's tokens or money, are used up.
            ProviderError: The provider failed for good, or its replies can't be used.
            NodeError: The node is lost, or can't open the checkout.

        Cancellation: the attempt or the tool calls in flight are stopped first.
        """
        while True:
            message, finish = await self._ask()
            meaning = read_reply(self._stage.kind, message, finish)
            if isinstance(meaning, Answered) and not self._lacks_evidence:
                return self._accept(message, meaning.fields)
            await self._go_on(message, meaning)

    async def _ask(self) -> tuple[AssistantMessage, Finish]:
        self._rounds += 1
        for text in self._take_messages():
            self._conversation.say(notices.from_caller(text))
        reply = await self._reply()
        message = self._conversation.add_reply(reply.message)
        if not is_blank(message.text):
            self._partial.text = message.text
        return message, reply.finish

    async def _reply(self) -> ModelReply:
        """A reply; where only the answer still fits into the limits, one to a request for the answer."""
        if not self._is_last_request:
            self._ledger.keeps_for_answer = self._rounds > 1
            try:
                return await self._asker.ask(self._request)
            except LimitReached as reached:
                if not self._ledger.keeps_for_answer:
                    raise
                self._close(reached)
        self._ledger.keeps_for_answer = False
        try:
            return await self._asker.ask(self._request)
        except LimitReached:
            if not self._asker.give_way(self._request()):
                raise
        return await self._asker.ask(self._request)

    def _request(self) -> ModelRequest:
        return ModelRequest(
            run_id=self._stage.run_id,
            stage_id=self._stage.stage_id,
            round=self._rounds,
            messages=self._conversation.to_send(),
            tools=(self._submit,) if self._is_last_request else (*self._specs, self._submit),
            options=self._stage.options,
        )

    def _close(self, reached: LimitReached) -> None:
        """From here on only the answer is asked for."""
        self._closing = reached
        limit, cap = str(reached.fields["kind"]), float(str(reached.fields["cap"]))
        self._conversation.say(notices.last_request_of_limit(self._stage.kind, limit, cap))

    @property
    def _is_last_request(self) -> bool:
        """Whether the next reply must be the answer."""
        return self._closing is not None or self._tool_rounds >= self._stage.limits.max_tool_rounds

    @property
    def _lacks_evidence(self) -> bool:
        return needs_evidence(self._stage) and not self._hands.used

    def _accept(self, message: AssistantMessage, fields: Mapping[str, str]) -> StageAnswer:
        """Take the answer: the attempt, the reply and the stage's end go on record in one step."""
        if message.tool_calls:
            self._answer_calls(message, notices.accepted(), status="success")
        self._warn()
        completed = StageCompleted(stage_id=self._stage.stage_id, answer=dict(fields))
        self._log.hand_over(NewEvent(type="stage.completed", payload=completed, work_id=self._stage.work_id))
        return StageAnswer(
            fields=fields,
            rounds=self._rounds,
            commands=tuple(self._partial.commands),
            changed=tuple(self._hands.changed),
            used_tools=self._hands.used,
        )

    async def _go_on(self, message: AssistantMessage, meaning: Meaning) -> None:
        """What follows on a reply that isn't the answer: another round, or the stage's end."""
        if isinstance(meaning, Withheld):
            raise ProviderError("the reply was withheld", reason=meaning.code)
        if self._is_last_request:
            raise self._closing or self._rounds_used_up()
        match meaning:
            case ToolsAsked():
                await self._do_calls(meaning.calls)
            case Answered():
                left = self._use_correction("a report without evidence")
                self._tell(message, notices.no_evidence(self._stage.kind, left=left))
            case NotValid():
                left = self._use_correction(meaning.reason)
                self._tell(message, notices.invalid_answer(self._stage.kind, meaning.reason, left=left))
            case CutShort():
                self._forgive_cut(message)
            case Empty():
                self._nudge(message)
            case _:
                assert_never(meaning)

    # ---- replies that can't be used

    def _use_correction(self, reason: str) -> int:
        """How many corrections are left after this one."""
        if self._corrections_left == 0:
            raise StageFailure("invalid_output", self._stage.kind, detail=reason)
        self._corrections_left -= 1
        return self._corrections_left

    def _forgive_cut(self, message: AssistantMessage) -> None:
        if self._cuts == CUTS_FORGIVEN:
            raise ProviderError("the provider cut one reply after the other", reason="cut")
        self._cuts += 1
        self._tell(message, notices.CUT_CALL if message.tool_calls else notices.CUT_TEXT)

    def _nudge(self, message: AssistantMessage) -> None:
        if self._nudged or self._corrections_left == 0:
            raise ProviderError("the model answered with nothing", reason="empty_result")
        self._nudged = True
        self._corrections_left -= 1
        self._tell(message, notices.empty_reply(self._stage.kind))

    def _rounds_used_up(self) -> LimitReached:
        cap = self._stage.limits.max_tool_rounds
        return LimitReached(
            f"the stage used all its {cap} tool rounds and gave no answer after them",
            limit_code="tool_rounds",
            kind="max_tool_rounds",
            value=self._tool_rounds,
            cap=cap,
        )

    def _tell(self, message: AssistantMessage, text: str) -> None:
        """Answer a reply of which nothing is carried out, whether it held calls or text."""
        note = self._note()
        if message.tool_calls:
            self._answer_calls(message, text, status="failed", note=note)
        else:
            self._conversation.say(f"{text}\n\n{note}" if note else text)

    def _answer_calls(
        self, message: AssistantMessage, text: str, *, status: str, note: str | None = None
    ) -> None:
        results = [_result(call, text, status) for call in message.tool_calls]
        self._conversation.add_results(results, note=note)

    # ---- tool calls

    async def _do_calls(self, calls: Sequence[ToolCallBlock]) -> None:
        self._refused = refused = self._refuse(calls)
        self._failing.start_round()
        outcomes = await self._hands.run([call for call in calls if call.tool_call_id not in refused])
        self._tool_rounds += 1
        results = [refused.get(call.tool_call_id) or outcomes[call.tool_call_id].result for call in calls]
        notes = self._watch_repeats(calls, outcomes)
        if self._closing is None and self._is_last_request:
            notes.append(notices.last_request(self._stage.kind, self._stage.limits.max_tool_rounds))
        self._conversation.add_results(results, note=self._note(notes))

    def _refuse(self, calls: Sequence[ToolCallBlock]) -> dict[str, ToolResult]:
        """Calls that aren't carried out, with what the model is told instead."""
        cap = self._stage.limits.max_tool_calls_per_round
        known = [spec.name for spec in self._specs]
        refused: dict[str, ToolResult] = {}
        admitted = 0
        if any(call.name == self._submit.name for call in calls):
            left = self._use_correction(f"{self._submit.name} beside other calls")
            alone = notices.submit_alone(self._stage.kind, left=left)
        else:
            alone = ""
        for call in calls:
            if call.name == self._submit.name:
                refused[call.tool_call_id] = _result(call, alone, "denied")
            elif call.name not in known:
                text = notices.unknown_tool(call.name, [*known, self._submit.name])
                refused[call.tool_call_id] = _result(call, text, "not_found")
            elif admitted == cap:
                refused[call.tool_call_id] = _result(call, notices.too_many_calls(cap), "denied")
            else:
                admitted += 1
        return refused

    def _watch_repeats(
        self, calls: Sequence[ToolCallBlock], outcomes: Mapping[str, CallOutcome]
    ) -> list[str]:
        """What to tell of calls that fail again and again; in the end only the answer is asked for."""
        notes: list[str] = []
        for call in calls:
            outcome = outcomes.get(call.tool_call_id)
            if outcome is not None and not outcome.failed:
                self._failing.succeeded(call, changed_files=outcome.changed_files)
            elif outcome is not None or call.name not in {spec.name for spec in self._specs}:
                count = self._failing.failed(call)
                if count >= ENDS_AT:
                    detail = f"the same call failed in {ENDS_AT} rounds, and no answer followed"
                    self._closing = StageFailure("invalid_output", self._stage.kind, detail=detail)
                    notes.append(notices.hopeless_call(self._stage.kind, call.name, count))
                elif count >= TOLD_AT:
                    notes.append(notices.repeated_call(call.name, count, ENDS_AT))
        return list(dict.fromkeys(notes))

    # ---- limits that are near

    def _note(self, notes: Iterable[str] = ()) -> str | None:
        """Remit's own words after the results, with the limits that have come near since the last time."""
        return "\n".join([*notes, *self._warn()]) or None

    def _warn(self) -> list[str]:
        near = (*self._ledger.take_warnings(), *self._nearing.check(tool_rounds=self._tool_rounds))
        for warning in near:
            payload = warning.model_copy(update={"stage_id": self._stage.stage_id})
            self._log.add(NewEvent(type="limit.warning", payload=payload, work_id=self._stage.work_id))
        return [notices.limit_near(warning.kind, warning.value, warning.cap) for warning in near]


def _result(call: ToolCallBlock, text: str, status: str) -> ToolResult:
    return ToolResult(tool_call_id=call.tool_call_id, name=call.name, content=text, status=status)
