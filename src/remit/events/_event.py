"""The envelope of an event, and what travels beside it into the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from remit.contract import Model, Moment


class Event(Model):
    """One stored fact. The keys are those of the stream's JSON (interfaces, section 5)."""

    type: str
    seq: int | None
    """1, 2, 3 … within the run; None for an ephemeral one."""
    run_id: str
    session_id: str
    at: Moment
    work_id: str | None = None
    parent_work_id: str | None = None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """A fact that is to be stored; the store gives it its number and its moment."""

    type: str
    payload: Model
    work_id: str | None = None
    parent_work_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ephemeral:
    """Something for viewers only: not stored, may be dropped."""

    type: Literal["message.delta", "reasoning.delta", "tool.output"]
    data: dict[str, Any]
    work_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """One message of a stage's conversation, stored beside the event that made it true.

    (run, stage_id, position) is its identity; positions rise by 1 from 0 within a stage.
    """

    stage_id: str
    position: int
    role: Literal["system", "user", "assistant", "tool"]
    body: dict[str, Any]
    """The message as `remit.models` writes it (`message_to_json`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A named text of the run, kept by the host: the patch, the plan, the brief."""

    name: str
    text: str
    media_type: str = "text/plain; charset=utf-8"
