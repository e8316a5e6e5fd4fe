"""What Remit says to the model while a stage goes on: one sentence or two each, saying what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from remit.contract import StageKind
from remit.stages._answers import SHAPES
from remit.stages._clip import clip_line

if TYPE_CHECKING:
    from remit.stages._elision import Shortened

CUT_TEXT: Final = (
    "Your reply was cut off because it was too long, so nothing of it counts. Say it in fewer words, or do "
    "it in smaller steps, such as one file per call."
)
CUT_CALL: Final = (
    "Not run: your reply was cut off because it was too long, so this call may be incomplete. Ask for less "
    "at a time, such as one file per call."
)
EMPTY: Final = "Your reply was empty."
INTERRUPTED: Final = "Interrupted before there was a result. What the call did, if anything, isn't known."
NOT_BEGUN: Final = "Not carried out: the stage ended before this call's turn."
FROM_CALLER: Final = "A message of the caller, sent while you were working; it adds to the request:"


def from_caller(text: str) -> str:
    """The caller has added something while the stage goes on."""
    return f"{FROM_CALLER}\n\n{text}"


def invalid_answer(kind: StageKind, reason: str, *, left: int) -> str:
    """The answer wasn't valid; how to give it rightly."""
    return f"That isn't a valid answer of this stage. {reason} {_how_to_answer(kind)} {_tries(left)}"


def empty_reply(kind: StageKind) -> str:
    """The reply held neither text nor a call."""
    return f"{EMPTY} Go on with the work, or end the stage. {_how_to_answer(kind)}"


def no_evidence(kind: StageKind, *, left: int) -> str:
    """The report came before any look at the workspace."""
    return (
        "This report can't be accepted: you haven't used a single workspace tool in this stage. Do the work "
        "with the tools, or look at what you speak of, and report then. "
        f"{_how_to_answer(kind)} {_tries(left)}"
    )


def submit_alone(kind: StageKind, *, left: int) -> str:
    """The submit tool was called beside other calls."""
    return (
        f"Not accepted: call `{SHAPES[kind].tool}` alone and once, after you have read the results of your "
        f"other calls. {_tries(left)}"
    )


def accepted() -> str:
    """The answer was taken; for the record, no request follows."""
    return "Accepted."


def unknown_tool(name: str, known: Iterable[str]) -> str:
    """No such tool."""
    asked = clip_line(name, max_chars=80)
    return f'Not run: there is no tool "{asked}". The tools of this stage are: {", ".join(known)}.'


def too_many_calls(cap: int) -> str:
    """More calls than a round may have."""
    return f"Not run: at most {cap} tool calls are run in one round. Ask for it again in the next one."


def repeated_call(name: str, count: int, cap: int) -> str:
    """The same call has failed again and again."""
    tool = clip_line(name, max_chars=80)
    return (
        f"The same call of `{tool}` has failed {count} times and won't succeed unchanged; when it fails "
        f"{cap} times, no tool is left to you. Find out why it fails, or go another way."
    )


def last_request(kind: StageKind, cap: int) -> str:
    """The tool rounds are used up."""
    return f"All {cap} tool rounds of this stage are used. {_answer_now(kind)}"


def last_request_of_limit(kind: StageKind, limit: str, cap: float) -> str:
    """What is left of a limit is enough for the answer and no more."""
    left = f"What is left of the limit {limit} ({_number(cap)}) is enough for the answer alone."
    return f"{left} {_answer_now(kind)}"


def hopeless_call(kind: StageKind, name: str, count: int) -> str:
    """The same call has failed so often that the stage is to end."""
    tool = clip_line(name, max_chars=80)
    return f"The same call of `{tool}` has failed {count} times. {_answer_now(kind)}"


def made_room(shortened: Shortened) -> str:
    """Old parts of the conversation gave way."""
    told: list[str] = []
    if shortened.results_replaced:
        told.append(
            f"{shortened.results_replaced} older results are one line each, with how to see them again"
        )
    if shortened.rounds_left_out:
        told.append(
            f"{shortened.rounds_left_out} of the oldest rounds are taken out; what was done in them is "
            "listed after the request"
        )
    if shortened.results_cut:
        told.append(f"{shortened.results_cut} results are cut in the middle")
    return f"Note: this conversation was getting too long. {'; '.join(told)}. Go on with the work."


def limit_near(name: str, value: float, cap: float) -> str:
    """Most of a limit is used."""
    return (
        f"Note: {_percent(value, cap)} % of the limit {name} is used ({_number(value)} of {_number(cap)}). "
        "Finish what matters most, then answer."
    )


def _answer_now(kind: StageKind) -> str:
    return (
        "No workspace tool is left; your next reply must be the answer. "
        f"{_how_to_answer(kind)} Say in it what is unfinished."
    )


def _how_to_answer(kind: StageKind) -> str:
    shape = SHAPES[kind]
    keys = ", ".join(f"`{key}`" for key in shape.keys)
    return (
        f"To answer, call `{shape.tool}` alone, or reply with exactly one JSON object with the keys {keys} "
        "and nothing around it."
    )


def _tries(left: int) -> str:
    return "This was the last warning." if left == 0 else f"Invalid answers that are still allowed: {left}."


def _percent(value: float, cap: float) -> int:
    return min(100, int(value * 100 / cap))


def _number(value: float) -> str:
    return f"{value:.10g}"
