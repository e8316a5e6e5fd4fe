"""What the compatible doors have in common: wishes become runs, and runs become answers or streams.

A dialect adds its words: how a body is read, how an answer, a stream and an error look.
"""

from remit.api.dialects._calls import DoorAnswer, DoorCall, DoorOperation
from remit.api.dialects._conversation import Conversation
from remit.api.dialects._dialect import Dialect, refusal
from remit.api.dialects._faults import Fault, fault_of, fault_of_run, status_of
from remit.api.dialects._fields import (
    Fields,
    flag_of,
    list_at,
    list_of,
    object_at,
    object_of,
    refuse_fields,
    text_at,
    text_of,
)
from remit.api.dialects._foreground import Foreground
from remit.api.dialects._frames import COMMENT, data_frame, event_frame
from remit.api.dialects._routes import DoorPlace
from remit.api.dialects._starting import (
    Attended,
    Wish,
    binding_of,
    client_metadata,
    door_facts,
    former_binding,
    start_run,
)
from remit.api.dialects._stream import Teller
from remit.api.dialects._telling import pieces_of, progress_line, tell
from remit.api.dialects._waiting import answer_stream, answer_whole, read_run

__all__ = [
    "COMMENT",
    "Attended",
    "Conversation",
    "Dialect",
    "DoorAnswer",
    "DoorCall",
    "DoorOperation",
    "DoorPlace",
    "Fault",
    "Fields",
    "Foreground",
    "Teller",
    "Wish",
    "answer_stream",
    "answer_whole",
    "binding_of",
    "client_metadata",
    "data_frame",
    "door_facts",
    "event_frame",
    "fault_of",
    "fault_of_run",
    "flag_of",
    "former_binding",
    "list_at",
    "list_of",
    "object_at",
    "object_of",
    "pieces_of",
    "progress_line",
    "read_run",
    "refusal",
    "refuse_fields",
    "start_run",
    "status_of",
    "tell",
    "text_at",
    "text_of",
]
