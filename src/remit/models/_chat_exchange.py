"""One Chat Completions exchange: the words and the ends of that dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from remit.models._attempt import AttemptCall, Broken
from remit.models._chat_calls import CallSlot
from remit.models._chat_observer import ChatObserver, ChatReading
from remit.models._exchange import WireExchange
from remit.models._local_prompts import was_cut
from remit.models._port import Finish

_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "guardrail_intervened": "content_filter",
    "sensitive": "content_filter",
    "refusal": "refusal",
}
"""The words of servers for why a model stopped (in lower case), in ours."""
_CUT_WORDS = frozenset(
    {"error", "abort", "aborted", "cancelled", "insufficient_system_resource", "network_error"}
)
"""Words that say that the provider broke off."""


class ChatExchange(WireExchange[ChatObserver]):
    """The record of one attempt; fed by the transport, judged by the adapter. See `WireExchange`."""

    effort_sent: str | None = None
    effort_is_ours = False
    may_cut_prompts = False
    """Whether the server is of a kind that may drop what doesn't fit, and say nothing."""

    def _observe(self, used_ids: Iterable[str], new_id: Callable[[], str]) -> ChatObserver:
        return ChatObserver(used_ids=used_ids, new_id=new_id)

    def prompt_cut(self, call: AttemptCall) -> Broken | None:
        """The failure that it is when the server has read less than the prompt; None where it read it all."""
        if not self.may_cut_prompts:
            return None
        usage = self.usage_so_far()
        window = call.window_tokens
        if not was_cut(call.request.messages, read_tokens=usage.input_tokens, window_tokens=window):
            return None
        known = f"its window of {window} tokens" if window else "its window"
        detail = (
            f"the server cut the prompt to {known}: it read {usage.input_tokens} tokens of more. Give the "
            "model a larger window: `context_window_tokens` of the pool's member, for a server that isn't "
            "Ollama its own setting too"
        )
        return self._break("failed", "context_length", detail, retryable=False)

    @property
    def reading(self) -> ChatReading:
        """What the observer read."""
        return self._observer.reading

    @property
    def calls(self) -> list[CallSlot]:
        """The tool calls as they stood on the wire."""
        return self._observer.calls.slots

    @property
    def began(self) -> bool:
        """Whether some of the content came."""
        return self.reading.has_text or bool(self.calls)

    def finish_kind(self) -> Finish | None:
        """Why the model stopped, in our words; None where its word isn't known."""
        reading = self.reading
        if reading.refusal:
            return "refusal"
        if reading.finish_word is None:
            return "tool_calls" if self.calls else "stop"
        kind = _FINISH.get(reading.finish_word.lower())
        if kind == "stop" and self.calls:
            return "tool_calls"
        return "stop" if kind == "tool_calls" and not self.calls else kind

    def _odd_end(self) -> Broken | None:
        if not self.reading.has_choice:
            text = "the reply has no choices"
            return self._break("failed", "empty_result", text, retryable=True, most_retries=1)
        word = self.reading.finish_word
        if word is not None and word.lower() in _CUT_WORDS:
            return self._break("cut", "cut", f"the provider stopped with {word!r}", retryable=True)
        if self.finish_kind() is None:
            return self._break("failed", "protocol", f"unknown finish_reason {word!r}", retryable=False)
        return None
