"""Amazon Bedrock by its Converse API, with an API key or requests signed for an account.

Not through its official client: that one holds a thread on a socket that nobody else may close, so a cancel
couldn't reach the stream (R4), and reads the reply where no observer sees it. See ADR 0017.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from remit.models._anthropic import refuses_form, reply_form, thinking_for
from remit.models._attempt import AttemptCall, Broken, Outcome
from remit.models._bedrock_body import blocks_of, converse_messages, mark_cache, tool_config
from remit.models._bedrock_exchange import ConverseExchange
from remit.models._catalog import find_claude, known_max_output
from remit.models._offered import OfferedTools
from remit.models._port import Delta
from remit.models._sdk_adapter import LibraryReply, SdkAdapter, as_adapted, judge
from remit.models._settings import ProviderSettings
from remit.primitives import Clock, Ids, dump_json

if TYPE_CHECKING:
    from remit.models._bedrock_http import BedrockHttp

_OWN_NAMES = {"temperature": "temperature", "top_p": "topP"}


class BedrockAdapter(SdkAdapter["BedrockHttp", ConverseExchange]):
    """One region of Bedrock."""

    exchange_class = ConverseExchange

    def __init__(self, settings: ProviderSettings, *, clock: Clock, ids: Ids) -> None:
        super().__init__(settings, clock=clock, ids=ids)
        self._offered = OfferedTools()
        self._loose: set[str] = set()
        """Models that refused to be held to a schema."""

    def _load(self) -> BedrockHttp:
        module: Any = importlib.import_module("remit.models._bedrock_http")
        http: BedrockHttp = module.BedrockHttp(self._settings, now=self._clock.now)
        return http

    async def _send(
        self, call: AttemptCall, exchange: ConverseExchange, on_delta: Callable[[Delta], None]
    ) -> LibraryReply:
        await self.sdk.send(call.model, exchange, body=self._body(call), on_delta=on_delta)
        usage = exchange.usage_so_far()
        blocks = blocks_of(exchange.reading.blocks.values(), provider=self._settings.name)
        return LibraryReply(blocks=blocks, counted=(usage.input_tokens or 0, usage.output_tokens or 0))

    def _body(self, call: AttemptCall) -> dict[str, Any]:
        request, options = call.request, call.request.options
        body = converse_messages(request.messages, provider=self._settings.name, model=call.full_model)
        cached = find_claude(call.model) is not None
        # The API has no way to withhold tools that it wants defined: the stage's own words must do.
        tools, _ = self._offered.of(request)
        if tools:
            body["toolConfig"] = tool_config(tools, cached=cached)
        if cached:
            mark_cache(body)
        bound = call.max_output_tokens or known_max_output(call.model)
        config: dict[str, Any] = {"maxTokens": bound}
        config |= {name: options[ours] for ours, name in _OWN_NAMES.items() if options.get(ours) is not None}
        stop = options.get("stop")
        if stop is not None:
            config["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
        body["inferenceConfig"] = config
        if cached and (more := _thinking(call, bound)):
            body["additionalModelRequestFields"] = more
        form = reply_form(call, loose=self._loose)
        if form is not None:
            structure = {"jsonSchema": {"name": "reply", "schema": dump_json(form["schema"])}}
            body["outputConfig"] = {"textFormat": {"type": form["type"], "structure": structure}}
        return body

    def _adapted(self, broken: Broken, call: AttemptCall, exchange: ConverseExchange) -> Broken:
        """A schema that was refused is left out: the prompt holds it, too."""
        held = reply_form(call, loose=self._loose) is not None
        if (
            broken.status == "refused"
            and exchange.status == 400
            and held
            and refuses_form(exchange.error_answer)
        ):
            self._loose.add(call.model)
            return as_adapted(broken)
        return broken

    def _judge(self, call: AttemptCall, exchange: ConverseExchange, reply: LibraryReply) -> Outcome:
        names = [block.name for block in exchange.reading.calls]
        return judge(call, exchange, reply, names=names, blocks=reply.blocks)


def _thinking(call: AttemptCall, bound: int) -> dict[str, Any]:
    """How Claude is to think, in its own words."""
    wanted = thinking_for(call.model, call.request.options, bound)
    more: dict[str, Any] = {}
    if "anthropic_thinking" in wanted:
        more["thinking"] = wanted["anthropic_thinking"]
    if "anthropic_effort" in wanted:
        more["output_config"] = {"effort": wanted["anthropic_effort"]}
    return more
