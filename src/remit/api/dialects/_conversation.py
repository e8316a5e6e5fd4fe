"""A client's messages, told apart: standing instructions, what was said before, and what is asked now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from remit.errors import InvalidRequest
from remit.primitives import dump_json

Role = Literal["user", "assistant"]
_ONLY_A_PICTURE: Final = "(What is asked is in the picture.)"


@dataclass(slots=True)
class _Turn:
    role: Role
    texts: list[str] = field(default_factory=list[str])
    images: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "\n\n".join(text for text in self.texts if text.strip())


class Conversation:
    """Collects a client's messages in their order."""

    def __init__(self) -> None:
        self._instructions: list[str] = []
        self._turns: list[_Turn] = []

    def instruct(self, text: str) -> None:
        """A system or developer message, wherever it stands."""
        if text.strip():
            self._instructions.append(text)

    def say(self, role: Role, text: str) -> None:
        """A piece of a turn; neighbours of one role are one turn."""
        self._turn(role).texts.append(text)

    def show(self, url: str, *, param: str) -> None:
        """A picture of the user's.

        Raises:
            InvalidRequest: It isn't in the request itself: nothing is fetched on a client's word.
        """
        if not url.startswith("data:image/"):
            raise InvalidRequest(
                "a picture is taken as a data URL (`data:image/png;base64,...`): nothing is fetched",
                param=param,
            )
        self._turn("user").images.append(url)

    def call(self, name: str, arguments: object) -> None:
        """A call of a tool of the client's, in an earlier turn of the model."""
        text = arguments if isinstance(arguments, str) else dump_json(arguments)
        self.say("assistant", f"[called {name} with {text}]")

    def result(self, call_id: str, text: str) -> None:
        """What such a call brought."""
        self.say("user", f"[result of {call_id}]\n{text}")

    def _turn(self, role: Role) -> _Turn:
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]

    def texts(self) -> list[str]:
        """All texts, as the model would read them."""
        return [*self._instructions, *(turn.text for turn in self._turns)]

    @property
    def image_count(self) -> int:
        """How many pictures there are."""
        return sum(len(turn.images) for turn in self._turns)

    def request_fields(self, *, param: str) -> dict[str, Any]:
        """The same as fields of a run's request.

        Args:
            param: The field of the body that holds the messages.

        Raises:
            InvalidRequest: It doesn't end with the user's words.
        """
        asked = self._turns[-1] if self._turns else None
        if asked is None or asked.role != "user" or not (asked.text or asked.images):
            raise InvalidRequest(f"`{param}` must end with what the user asks", param=param)
        earlier = [
            {"role": turn.role, "text": turn.text, "images": turn.images}
            for turn in self._turns[:-1]
            if turn.text or turn.images
        ]
        fields: dict[str, Any] = {}
        if asked.images:
            pictures = [{"type": "image", "url": url} for url in asked.images]
            fields["content"] = [{"type": "text", "text": asked.text or _ONLY_A_PICTURE}, *pictures]
        else:
            fields["prompt"] = asked.text
        if earlier:
            fields["earlier"] = earlier
        if self._instructions:
            fields["instructions"] = "\n\n".join(self._instructions)
        return fields
