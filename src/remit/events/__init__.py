"""Append-only facts about a run: which there are, how one is written, and how old ones are read.

An event is stored once and never changed. Readers of today read events of yesterday through
upcasters; a writer always writes the present version.
"""

from remit.events._catalog import (
    EPHEMERAL_TYPES,
    PAYLOADS,
    TERMINAL_TYPES,
    closing_among,
    payload_of,
    terminal_type,
)
from remit.events._codec import CURRENT_VERSION, decode_event, encode_event, number_event, upcast_data
from remit.events._event import Artifact, Ephemeral, Event, NewEvent, TranscriptEntry

__all__ = [
    "CURRENT_VERSION",
    "EPHEMERAL_TYPES",
    "PAYLOADS",
    "TERMINAL_TYPES",
    "Artifact",
    "Ephemeral",
    "Event",
    "NewEvent",
    "TranscriptEntry",
    "closing_among",
    "decode_event",
    "encode_event",
    "number_event",
    "payload_of",
    "terminal_type",
    "upcast_data",
]
