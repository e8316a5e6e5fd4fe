"""Content as OpenAI's two APIs write it: text, or a list of parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from remit.api.dialects import Conversation, list_at, object_at, text_at
from remit.errors import InvalidRequest

_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_MEANT_AS_TEXT: Final = {"refusal": "refusal"}


def text_of_content(content: object, param: str) -> str:
    """The text of content that may hold nothing else; nothing, where there is none (R72).

    Raises:
        InvalidRequest: It isn't content, or holds more than text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for index, part in enumerate(list_at(content, param)):
        at = f"{param}.{index}"
        text = part if isinstance(part, str) else _text_of_part(object_at(part, at), at)
        if text is None:
            raise _unknown_part(object_at(part, at), at)
        texts.append(text)
    return "\n\n".join(texts)


def say_user(conversation: Conversation, content: object, param: str) -> None:
    """Take up the user's content, pictures too.

    Raises:
        InvalidRequest: A part is neither text nor a picture; it isn't left out without a word.
    """
    if content is None or isinstance(content, str):
        conversation.say("user", content or "")
        return
    for index, entry in enumerate(list_at(content, param)):
        at = f"{param}.{index}"
        part = object_at(entry, at)
        text = _text_of_part(part, at)
        if text is not None:
            conversation.say("user", text)
        elif part.get("type") in ("image_url", "input_image"):
            conversation.show(_image_url(part, at), param=at)
        else:
            raise _unknown_part(part, at)


def _text_of_part(part: Any, param: str) -> str | None:
    kind = part.get("type")
    if kind in _TEXT_TYPES:
        return text_at(part.get("text"), f"{param}.text")
    if kind in _MEANT_AS_TEXT:
        return text_at(part.get(_MEANT_AS_TEXT[kind]), f"{param}.{kind}")
    return None


def _image_url(part: Any, param: str) -> str:
    url: Any = part.get("image_url")
    if isinstance(url, dict):
        url = cast("Mapping[str, Any]", url).get("url")
    if url is None and part.get("file_id") is not None:
        raise InvalidRequest("files of the vendor's aren't known here: send the picture itself", param=param)
    return text_at(url, f"{param}.image_url")


def _unknown_part(part: Any, param: str) -> InvalidRequest:
    kind = str(part.get("type"))[:40]
    return InvalidRequest(
        f"`{param}`: a part of type `{kind}` isn't taken: send text, or a picture", param=param
    )
