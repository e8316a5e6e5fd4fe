"""Reading a reply through the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from remit.contract import ToolSpec
from remit.models._library_messages import Origin, blocks_from_library
from remit.models._port import Delta
from remit.models._sdk_adapter import LibraryReply
from remit.models._transport import CURRENT, WireRecord


async def read_reply(
    model: Model[Any],
    messages: list[ModelMessage],
    record: WireRecord,
    *,
    settings: Mapping[str, Any],
    parameters: ModelRequestParameters,
    origin: Origin,
    on_delta: Callable[[Delta], None],
) -> LibraryReply:
    """Send one request and read the reply.

    Raises:
        Exception: Whatever the library makes of a bad reply; `record` knows better.
    """
    token = CURRENT.set(record)
    try:
        async with model_request_stream(
            model,
            messages,
            model_settings=cast("ModelSettings", dict(settings)),
            model_request_parameters=parameters,
        ) as stream:
            async for event in stream:
                delta = delta_of(event)
                if delta is not None:
                    on_delta(delta)
            response = stream.get()
    finally:
        CURRENT.reset(token)
    blocks = blocks_from_library(response.parts, origin)
    return LibraryReply(blocks=blocks, counted=(response.usage.input_tokens, response.usage.output_tokens))


class ToolForms:
    """Tools in the library's form; the rounds of a stage share one."""

    def __init__(self) -> None:
        self._last: tuple[tuple[ToolSpec, ...], ModelRequestParameters] | None = None

    def of(self, tools: tuple[ToolSpec, ...]) -> ModelRequestParameters:
        """The tools of a request."""
        if self._last is None or self._last[0] is not tools:
            definitions = [
                ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=cast("dict[str, Any]", tool.parameters),
                )
                for tool in tools
            ]
            self._last = (tools, ModelRequestParameters(function_tools=definitions))
        return self._last[1]


def delta_of(event: object) -> Delta | None:
    """What a viewer sees of an event of the library; None when that is nothing."""
    match event:
        case (
            PartStartEvent(part=TextPart(content=text))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
        ):
            return Delta(kind="text", text=text) if text else None
        case PartStartEvent(part=ThinkingPart(content=text)):
            return Delta(kind="reasoning", text=text) if text else None
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)):
            return Delta(kind="reasoning", text=text) if text else None
        case PartStartEvent(part=ToolCallPart(tool_name=name, args=arguments)):
            return Delta(kind="tool_call", text=f"{name} {arguments if isinstance(arguments, str) else ''}")
        case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=arguments)):
            return (
                Delta(kind="tool_call", text=arguments) if isinstance(arguments, str) and arguments else None
            )
        case _:
            return None
