"""What a stage is told at its beginning: byte for byte the same for the same input.

The system message is the stage's instruction; it comes from the files in `prompts/`. The user message
holds sections, from the one that changes least to the one that changes most, so that providers can
reuse what they have read: brief, session, instructions, request, and then what the stage builds on.

A section is framed by a number that is made from its own text. Text can't contain the number that is
made from it, so nothing inside a section can pretend to end it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.resources import files
from typing import Final

from remit.contract import EarlierTurn
from remit.models import AssistantMessage, Message, SystemMessage, TextBlock, UserMessage
from remit.stages._clip import clip_end, clip_line, clip_middle
from remit.stages._ports import CommandRecord, StageInput

PROMPTS_VERSION: Final = 1
"""Rises whenever a file in `prompts/` or the layout below changes."""

MAX_PATCH_CHARS: Final = 60_000
MAX_REPORT_CHARS: Final = 30_000
MAX_ADDED_CHARS: Final = 60_000
MAX_COMMANDS: Final = 40
MAX_COMMAND_LINE_CHARS: Final = 300
MAX_COMMAND_TAIL_CHARS: Final = 800

_BEGUN_BY_MODEL: Final = "(The conversation begins with your own words.)"
_TOLD_BY_CALLER: Final = "caller:earlier"
"""Where a model's name stands, for a reply that no model of ours gave."""
_NAMES: Final = ("plan", "work", "direct", "doing", "review", "rules", "evidence")
_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "plan": ("plan", "rules"),
    "work": ("work", "doing", "rules"),
    "direct": ("direct", "doing", "rules"),
    "review": ("review", "rules"),
}


def first_messages(stage: StageInput, *, note: str | None = None) -> tuple[Message, ...]:
    """The head of a stage's conversation.

    Args:
        stage: What it starts from.
        note: A word of Remit's own at the very end, such as a limit that is near.
    """
    sections = [text for text in _sections(stage) if text]
    if note:
        sections.append(note)
    images = (*(image for turn in stage.earlier for image in turn.images), *stage.images)
    return (SystemMessage(text=instruction(stage)), UserMessage(text="\n\n".join(sections), images=images))


def answer_messages(stage: StageInput) -> tuple[Message, ...]:
    """The whole conversation of a plain answer: what its caller says, and nothing of ours around it."""
    told = [_section("earlier runs of this session", stage.session_context), stage.instructions or ""]
    messages: list[Message] = []
    if system := "\n\n".join(text for text in told if text.strip()):
        messages.append(SystemMessage(text=system))
    if stage.earlier and stage.earlier[0].role == "assistant":
        messages.append(UserMessage(text=_BEGUN_BY_MODEL))  # some providers want the user's word first
    messages += [_turn(turn) for turn in stage.earlier]
    return (*messages, UserMessage(text=stage.request_text, images=stage.images))


def _turn(turn: EarlierTurn) -> Message:
    if turn.role == "user":
        return UserMessage(text=turn.text, images=turn.images)
    return AssistantMessage(blocks=(TextBlock(text=turn.text),), model=_TOLD_BY_CALLER)


def instruction(stage: StageInput) -> str:
    """The stage's instruction: in work without a plan, nothing speaks of one."""
    name = "direct" if stage.kind == "work" and stage.plan is None else stage.kind
    parts = _PARTS[name]
    if needs_evidence(stage):
        parts = (*parts, "evidence")
    return "\n\n".join(PROMPTS[part] for part in parts)


def needs_evidence(stage: StageInput) -> bool:
    """Whether the stage has to use a workspace tool before it may answer. Without tools it can't."""
    return stage.kind == "work" and stage.require_evidence and bool(stage.tools)


def _read(name: str) -> str:
    return files("remit.stages").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()


PROMPTS: Final = {name: _read(name) for name in _NAMES}
"""The prompt files, by name. Read when the module is loaded, so that no stage's clock pays for it."""


def _sections(stage: StageInput) -> Iterator[str]:
    yield _section("brief", stage.brief)
    yield _section("earlier runs of this session", stage.session_context)
    yield _section("instructions", stage.instructions)
    yield _section("conversation before the request, oldest first", _conversation(stage.earlier))
    yield _section("request", stage.request_text)
    added = clip_end("\n\n".join(stage.messages), max_chars=MAX_ADDED_CHARS)
    yield _section("what the caller added later", added)
    match stage.kind:
        case "plan":
            return
        case "work":
            yield _section("plan", stage.plan)
            yield _section("how the plan says it is to be verified", stage.verification)
            yield from _earlier_work(stage, report="report of the earlier work")
            yield _section("remarks on the earlier work, each to be dealt with", stage.feedback)
        case "review":
            yield from _earlier_work(stage, report="report of the work")
            yield _section("how it was to be verified", stage.verification)
            yield _section("remarks on an earlier review, each to be dealt with", stage.feedback)


def _conversation(turns: Iterable[EarlierTurn]) -> str:
    names = {"user": "User", "assistant": "Assistant"}
    return "\n\n".join(f"{names[turn.role]}:\n{turn.text}" for turn in turns)


def _earlier_work(stage: StageInput, *, report: str) -> Iterator[str]:
    if stage.completion is not None:
        yield _section(report, clip_middle(stage.completion, max_chars=MAX_REPORT_CHARS))
    if stage.patch is not None:
        patch = clip_middle(stage.patch, max_chars=MAX_PATCH_CHARS) or "(nothing has been changed)"
        yield _section("patch so far", patch)
    if stage.kind == "review":
        yield _section("commands that were run", "\n".join(_command_log(stage.commands)) or "(none)")


def _command_log(commands: Iterable[CommandRecord]) -> Iterator[str]:
    kept = list(commands)
    if len(kept) > MAX_COMMANDS:
        yield f"[… {len(kept) - MAX_COMMANDS} earlier commands left out …]"
    for record in kept[-MAX_COMMANDS:]:
        ending = f"exit code {record.exit_code}" if record.exit_code is not None else record.status
        command = clip_line(record.command, max_chars=MAX_COMMAND_LINE_CHARS)
        yield f"$ {command}   [{record.stage_id}: {ending}]"
        tail = clip_end(record.tail.rstrip(), max_chars=MAX_COMMAND_TAIL_CHARS)
        yield from (f"  {line}" for line in tail.split("\n") if line.strip())


def _section(name: str, text: str | None) -> str:
    if not text or not text.strip():
        return ""
    number = text_sha256(text)[:16]
    return f"<{name}: {number}>\n{text.strip(chr(10))}\n</{number}>"


def text_sha256(text: str) -> str:
    """The hash by which a text of a run is known: SHA-256 of its UTF-8, in hexadecimal."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
