"""What the steps are: plan, work, review; prompts, answers, the round loop.

A stage is one conversation with a model. `StageRunner` holds it: it asks, does the tool calls that are
asked for, tells the model what was wrong with an answer, and returns the first valid one. What it needs
from the run around it are the ports `Journal` and `Tools`.
"""

from remit.stages._answers import DECISIONS, SHAPES, Invalid, Valid, read_arguments, read_text, submit_tool
from remit.stages._calls import call_label
from remit.stages._ledger import WorkItems
from remit.stages._ports import (
    CommandRecord,
    Journal,
    Partial,
    StageAnswer,
    StageFailure,
    StageInput,
    Tools,
    ToolUse,
)
from remit.stages._prompts import PROMPTS_VERSION, text_sha256
from remit.stages._runner import StageRunner, offered_tools

__all__ = [
    "DECISIONS",
    "PROMPTS_VERSION",
    "SHAPES",
    "CommandRecord",
    "Invalid",
    "Journal",
    "Partial",
    "StageAnswer",
    "StageFailure",
    "StageInput",
    "StageRunner",
    "ToolUse",
    "Tools",
    "Valid",
    "WorkItems",
    "call_label",
    "offered_tools",
    "read_arguments",
    "read_text",
    "submit_tool",
    "text_sha256",
]
