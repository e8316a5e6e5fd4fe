"""Ollama in its own form, so that the context window is set and never cut in silence."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from remit.models._attempt import AttemptCall
from remit.models._chat_exchange import ChatExchange
from remit.models._chat_observer import ChatObserver
from remit.models._facts import LOCAL_WINDOW_TOKENS, look_up
from remit.models._ollama_wire import OllamaObserver
from remit.models._openai_chat import OpenAIChatAdapter

if TYPE_CHECKING:
    from remit.models._openai_sdk import OpenAISdk

WINDOW_FIELD = "remit_window"
"""Carries the window from the adapter to where the body is made."""


class OllamaExchange(ChatExchange):
    """The record of one attempt."""

    lines_of_json = True

    def _observe(self, used_ids: Iterable[str], new_id: Callable[[], str]) -> ChatObserver:
        return OllamaObserver(used_ids=used_ids, new_id=new_id)


class OllamaAdapter(OpenAIChatAdapter):
    """One Ollama server."""

    exchange_class = OllamaExchange

    async def find_window(self, model: str) -> int | None:
        """The window to set: the model's own, but no more than memory is likely to be there for."""
        looked = await look_up(self._settings, model=model)
        facts = (looked.models or {}).get(model)
        told = facts.window_tokens if facts is not None else None
        return min(told or LOCAL_WINDOW_TOKENS, LOCAL_WINDOW_TOKENS)

    def _load(self) -> OpenAISdk:
        module: Any = importlib.import_module("remit.models._ollama_sdk")
        sdk: OpenAISdk = module.OllamaSdk(self._settings)
        return sdk

    def _extra_body(self, call: AttemptCall) -> dict[str, Any]:
        window = call.window_tokens or LOCAL_WINDOW_TOKENS
        return {**super()._extra_body(call), WINDOW_FIELD: window}
