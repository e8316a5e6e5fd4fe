"""The tools of a stage for a request that withholds them.

A conversation with tool calls in it needs its tools defined, and both cache and thinking hang on them; so a
request that withholds them still names them, and says that none may be called.
"""

from __future__ import annotations

from collections import OrderedDict

from remit.contract import ToolSpec
from remit.models._messages import AssistantMessage
from remit.models._port import ModelRequest

_STAGES_REMEMBERED = 1_024


class OfferedTools:
    """Remembers which tools a stage was last offered."""

    def __init__(self) -> None:
        self._offered: OrderedDict[tuple[str, str], tuple[ToolSpec, ...]] = OrderedDict()

    def of(self, request: ModelRequest) -> tuple[tuple[ToolSpec, ...], bool]:
        """The tools to send, and whether the model may not use them."""
        key = (request.run_id, request.stage_id)
        if request.tools:
            self._offered[key] = request.tools
            self._offered.move_to_end(key)
            if len(self._offered) > _STAGES_REMEMBERED:
                self._offered.popitem(last=False)
            return request.tools, False
        called = _called_names(request)
        if not called:
            return (), False
        return self._offered.get(key) or tuple(map(_placeholder, called)), True


def _called_names(request: ModelRequest) -> list[str]:
    calls = (
        call.name
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    )
    return list(dict.fromkeys(calls))


def _placeholder(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={"type": "object"}, effect="read")
