"""Which signature of Gemini's goes back on which part: pure."""

from __future__ import annotations

from remit.models import AssistantMessage
from remit.models._google_contents import blocks_of, contents_for
from remit.models._google_observer import WirePart

CAME = (
    WirePart(kind="thought", text="Let me see.", signature="c2lnLXRob3VnaHQ="),
    WirePart(kind="thought", text="Unsigned."),
    WirePart(kind="text", text="The answer", signature="c2lnLXRleHQ="),
    WirePart(kind="text", text=" goes on."),
    WirePart(kind="text", text="", signature="c2lnLWVtcHR5"),
    WirePart(kind="call", text='{"a":1}', name="look", call_id="c1", signature="c2lnLWNhbGw="),
)


def test_each_part_gets_its_own_signature_back() -> None:
    """S30, R29, R30: of thoughts, texts, an empty one too, and calls; what had none gets none."""
    message = AssistantMessage(blocks=blocks_of(CAME, provider="g"), model="g:m")
    (sent,) = contents_for([message], provider="g", model="g:m")["contents"]
    assert sent["parts"] == [
        {"text": "Let me see.", "thought": True, "thoughtSignature": "c2lnLXRob3VnaHQ="},
        {"text": "Unsigned.", "thought": True},
        {"text": "The answer", "thoughtSignature": "c2lnLXRleHQ="},
        {"text": " goes on."},
        {"text": "", "thoughtSignature": "c2lnLWVtcHR5"},
        {"functionCall": {"name": "look", "args": {"a": 1}}, "thoughtSignature": "c2lnLWNhbGw="},
    ]
    assert message.text == "The answer goes on.", "no signature is part of what is said"
    assert "sig" not in message.text


def test_another_model_gets_none_of_them() -> None:
    """S30, R29: a signature is for the model that gave it."""
    message = AssistantMessage(blocks=blocks_of(CAME, provider="g"), model="g:m")
    (sent,) = contents_for([message], provider="g", model="g:other")["contents"]
    assert not any(str(part.get("thoughtSignature", "")).startswith("c2ln") for part in sent["parts"])
