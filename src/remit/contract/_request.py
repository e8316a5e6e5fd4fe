"""What a caller asks for: the body of a run."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from remit.contract._limits import LimitRequest
from remit.contract._model import Model
from remit.contract._words import DeliveryMode, OnBusy, Preserve, Profile, StageKind
from remit.primitives import is_run_id

_ID_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$"}, {"type": "null"}]
}
"""What `is_run_id` takes, for the descriptions that are made of a request."""
_PROMPT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}],
    "description": "Either this or `content`.",
}


class TextPart(Model):
    """A piece of text in a list of content parts."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(Model):
    """A picture, as a data URL; it passes where the pool's model takes pictures."""

    type: Literal["image"] = "image"
    url: str
    media_type: str | None = None


ContentPart = TextPart | ImagePart


class EarlierTurn(Model):
    """What was said before in the conversation that a request belongs to, as its client tells it."""

    role: Literal["user", "assistant"]
    text: str
    images: tuple[str, ...] = ()
    """Data URLs; only a user's turn has some."""


class WorkspaceRequest(Model):
    """Which workspace, on what base."""

    ref: str
    base: str | None = None
    """`worktree`, `head` or a git revision; None: the default for where the caller is."""
    subdir: str | None = None
    """Working folder, relative to the root; None: the root."""


class StageRequest(Model):
    """A caller's narrower wish for one stage."""

    model: str | None = None
    options: dict[str, Any] = Field(default_factory=dict[str, Any])


class DeliveryRequest(Model):
    """How the result is to be delivered."""

    mode: DeliveryMode
    approval: Literal["required"] | None = None
    branch: str | None = None


class RunRequest(Model):
    """One request for one run. Unknown keys are refused."""

    id: str | None = Field(default=None, json_schema_extra=_ID_SCHEMA)
    """The caller's own id for the run, `[A-Za-z0-9_-]{1,128}`; None: one is made."""
    binding: str | None = None
    session_id: str | None = Field(default=None, json_schema_extra=_ID_SCHEMA)
    continues: str | None = Field(default=None, json_schema_extra=_ID_SCHEMA)
    prompt: str | None = Field(default=None, json_schema_extra=_PROMPT_SCHEMA)
    content: tuple[ContentPart, ...] | None = None
    instructions: str | None = None
    earlier: tuple[EarlierTurn, ...] = ()
    """The turns before this one, oldest first, where the caller keeps the conversation."""
    workspace: WorkspaceRequest | None = None
    profile: Profile | None = None
    model: str | None = None
    """`NAME:MODEL`, for every stage that names none of its own."""
    stages: dict[StageKind, StageRequest] = Field(default_factory=dict[StageKind, StageRequest])
    limits: LimitRequest = Field(default_factory=LimitRequest)
    delivery: DeliveryRequest | None = None
    preserve: Preserve | None = None
    usage: Literal["required"] | None = None
    acknowledge: Literal["required"] | None = None
    on_busy: OnBusy | None = None
    webhook: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    in_place: bool = False
    unreviewed: bool = False
    allow_protected: bool = False

    @field_validator("id", "session_id", "continues")
    @classmethod
    def _check_id(cls, value: str | None) -> str | None:
        if value is not None and not is_run_id(value):
            raise ValueError("an id is 1 to 128 of A-Z a-z 0-9 _ -")
        return value

    @field_validator("delivery", mode="before", json_schema_input_type=DeliveryRequest | DeliveryMode | None)
    @classmethod
    def _take_mode_word(cls, value: object) -> object:
        return {"mode": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_prompt(self) -> RunRequest:
        if (self.prompt is None) == (self.content is None):
            raise ValueError("give either `prompt` or `content`")
        return self

    def text(self) -> str:
        """The request's text: the prompt, or its text parts joined by blank lines."""
        if self.prompt is not None:
            return self.prompt
        return "\n\n".join(part.text for part in self.content or () if isinstance(part, TextPart))

    def images(self) -> tuple[str, ...]:
        """Its pictures, as data URLs, without those of earlier turns."""
        return tuple(part.url for part in self.content or () if isinstance(part, ImagePart))

    def shows_images(self) -> bool:
        """Whether it, or a turn before it, has a picture."""
        return bool(self.images()) or any(turn.images for turn in self.earlier)
