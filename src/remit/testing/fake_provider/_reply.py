"""What a fake provider is told to answer, and what it saw."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from remit.testing.fake_provider._shapes import is_array, is_object

UsageForm = Literal["final", "each_chunk", "none"]
Framing = Literal["chunked", "length", "close"]
Break = Literal["close", "reset", "hang"]
_SUBMIT_IN_TEXT = re.compile(r"calling `submit_(?P<stage>plan|work|review)`")
_MODEL_IN_PATH = re.compile(r"/(?:models?|deployments)/(?P<model>[^/:?]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeToolCall:
    """A tool call in a reply."""

    name: str
    arguments: str | Mapping[str, Any] = "{}"
    """Text is sent exactly as it is."""
    id: str | None = None
    """None: made by the fake."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of the call, such as `extra_content`."""

    @property
    def argument_text(self) -> str:
        """The arguments as they stand on the wire."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of the fake provider: content, or a fault, or content that breaks off.

    Replies are matched in order: the first one that isn't used up and whose `when` holds is taken.
    """

    text: str | None = None
    thinking: str | None = None
    """Sent as `reasoning_content`."""
    refusal: str | None = None
    tool_calls: tuple[FakeToolCall, ...] = ()
    finish: str | None = None
    """None: `tool_calls` when there are some, else `stop`. The empty string sends none at all."""
    usage: Mapping[str, Any] | Literal["auto"] | None = "auto"
    """The usage object, exactly; `auto` computes one from the sizes of request and reply."""
    usage_form: UsageForm = "final"
    deltas: tuple[Mapping[str, Any] | None, ...] | None = None
    """Streamed `delta` objects exactly as given, in place of those made from the fields above."""
    blocks: tuple[Mapping[str, Any], ...] | None = None
    """The parts of the answer as the dialect names them (Anthropic's content blocks, a `tool_use` with its
    `input` as text; the output items of Responses; Gemini's parts), in place of those made from the
    fields above."""
    chunk_count: int = 2
    """Pieces that the text is streamed in."""
    head_chunk: bool = False
    """Begin the stream with a chunk that has no choices, as some gateways do."""
    done: bool = True
    """End the stream with `[DONE]`."""
    line_end: str = "\n"
    tail: bytes = b""
    """Bytes after the end of the stream."""
    raw: bytes | None = None
    """The whole body, exactly; nothing else is rendered."""
    content_type: str | None = None
    framing: Framing = "chunked"
    piece_bytes: int | None = None
    """Send the body in pieces of this size, each its own write; None: event by event."""

    status: int = 200
    """Anything but 200 is an error answer with `body`."""
    body: Any = None
    """JSON value, or text, of an error answer; None: the shape that the status has at the real one."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    echo_key: bool = False
    """Put the request's key into the error's text, as some do."""

    delay_ms: int = 0
    """Wait before the status line."""
    body_delay_ms: int = 0
    """Wait between the head and the first byte of the body."""
    piece_delay_ms: int = 0
    """Wait before each further piece."""
    break_after_bytes: int | None = None
    """Stop after so many bytes of the body."""
    break_how: Break = "close"

    when: Callable[[RecordedRequest], bool] | None = None
    stage: str | None = None
    """`plan`, `work` or `review`: only for a request that offers that stage's submit tool."""
    model: str | None = None
    """Only for a request for this model."""
    repeat: bool = False
    """Never used up."""

    def matches(self, request: RecordedRequest) -> bool:
        """Whether this reply answers the request."""
        if self.stage is not None and request.stage != self.stage:
            return False
        if self.model is not None and request.model != self.model:
            return False
        return self.when is None or self.when(request)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Reply:
        """A reply from JSON data: the fields above, without `when` and the bytes ones."""
        known = {item.name for item in fields(cls)} - {"when", "raw", "tail"}
        unknown = sorted(set(value) - known)
        if unknown:
            raise ValueError(f"unknown key in a reply: {', '.join(unknown)}")
        data = dict(value)
        if "tool_calls" in data:
            data["tool_calls"] = tuple(FakeToolCall(**call) for call in data["tool_calls"])
        for key in ("deltas", "blocks"):
            if data.get(key) is not None:
                data[key] = tuple(data[key])
        return cls(**data)


@dataclass(slots=True, kw_only=True, eq=False)
class RecordedRequest:
    """One request as it came, with what became of it. Headers are raw, the key too."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    json: Any = None
    """The parsed body; None where it isn't JSON."""
    arrived_at: float = 0.0
    """Monotonic seconds."""
    status: int | None = None
    """What was answered; None: nothing yet."""
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when the answer went out whole, or the client left."""
    hung_up: bool = False
    """The client closed the connection before the answer was whole."""
    sent_bytes: int = 0
    """Of the body."""

    @property
    def model(self) -> str | None:
        """The model asked for, by the body or by the path."""
        named = self.json.get("model") if is_object(self.json) else None
        found = _MODEL_IN_PATH.search(self.path) if named is None else None
        return unquote(found["model"]) if found is not None else named

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools on offer."""
        tools = self.json.get("tools") if is_object(self.json) else None
        if not is_array(tools):
            return ()
        return tuple(_tool_name(one) for tool in tools for one in _declared(tool))

    @property
    def stage(self) -> str | None:
        """The stage whose submit tool is on offer."""
        for name in self.tool_names:
            if name.startswith("submit_"):
                return name.removeprefix("submit_")
        # A model that replies in JSON is offered its tools in the schema, or in the prompt.
        found = _SUBMIT_IN_TEXT.search(self.text) if not self.tool_names else None
        return found["stage"] if found is not None else None

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    def wait(self, timeout_s: float = 10.0) -> bool:
        """Wait until it ended; False when it didn't in time."""
        return self.ended.wait(timeout_s)


def _declared(tool: Any) -> list[Any]:
    """The tools that an entry of the list stands for; Gemini puts all of them into one."""
    inner = tool.get("functionDeclarations") if is_object(tool) else None
    return inner if is_array(inner) else [tool]


def _tool_name(tool: Any) -> str:
    inner = tool.get("function", tool) if is_object(tool) else None
    name = inner.get("name") if is_object(inner) else None
    return name if isinstance(name, str) else ""


Replies: TypeAlias = "Sequence[Reply | str] | Reply | str"


def as_replies(replies: Replies) -> list[Reply]:
    """Replies from replies or plain texts."""
    items: Iterable[Reply | str] = [replies] if isinstance(replies, (Reply, str)) else replies
    return [Reply(text=item) if isinstance(item, str) else item for item in items]


def route_by_stage(
    *, plan: Replies = (), work: Replies = (), review: Replies = (), repeat: bool = False
) -> list[Reply]:
    """Replies for the stages of a run, told apart by the submit tool that each offers.

    Args:
        plan: In order, for requests that offer `submit_plan`.
        work: The same with `submit_work`.
        review: The same with `submit_review`.
        repeat: Each stage's last reply is never used up.
    """
    routed: list[Reply] = []
    for stage, replies in (("plan", plan), ("work", work), ("review", review)):
        items = as_replies(replies)
        for number, reply in enumerate(items, start=1):
            last = repeat and number == len(items)
            routed.append(replace(reply, stage=stage, repeat=reply.repeat or last))
    return routed
