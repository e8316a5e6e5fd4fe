"""A plain answer: one request, no tools, no form; what the model says is the answer."""

from __future__ import annotations

from remit.contract import StageCompleted
from remit.errors import ProviderError
from remit.events import NewEvent
from remit.models import AssistantMessage, Finish, ModelRequest
from remit.primitives import clean_text
from remit.stages._answers import is_blank
from remit.stages._asking import Asker
from remit.stages._conversation import Conversation
from remit.stages._log import StageLog
from remit.stages._ports import Partial, StageAnswer, StageInput


async def answer_plainly(
    stage: StageInput, *, asker: Asker, conversation: Conversation, log: StageLog, partial: Partial
) -> StageAnswer:
    """Ask once; the answer is `completion`, and goes on record with what the run does next.

    Raises:
        ProviderError: There is no answer: it was cut, withheld, empty, or a call of a tool that isn't there.
        LimitReached: The request doesn't fit into what is left of the run.

    Cancellation: the attempt in flight is stopped first.
    """
    reply = await asker.ask(
        ModelRequest(
            run_id=stage.run_id,
            stage_id=stage.stage_id,
            round=1,
            messages=conversation.to_send(),
            options=stage.options,
        )
    )
    message = conversation.add_reply(reply.message)
    if not is_blank(message.text):
        partial.text = message.text
    _refuse(message, reply.finish)
    # What can't be stored is replaced; all else stays as it was written.
    fields = {"completion": clean_text(message.text)[0]}
    completed = StageCompleted(stage_id=stage.stage_id, answer=fields)
    log.hand_over(NewEvent(type="stage.completed", payload=completed, work_id=stage.work_id))
    return StageAnswer(fields=fields, rounds=1)


def _refuse(message: AssistantMessage, finish: Finish) -> None:
    if finish in ("content_filter", "refusal"):
        raise ProviderError("the reply was withheld", reason=finish)
    if finish == "length":
        raise ProviderError("the provider cut the reply", reason="cut")
    if message.tool_calls:
        raise ProviderError("the model called a tool, and none was offered", reason="protocol")
    if is_blank(message.text):
        raise ProviderError("the model answered with nothing", reason="empty_result")
