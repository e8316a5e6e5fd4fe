"""The text of a request: from an argument, a file, or stdin."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from remit.errors import InvalidRequest, PayloadTooLarge
from remit.requests import MAX_TEXT_BYTES


def read_prompt(prompt: str | None, prompt_file: Path | None) -> str:
    """The request's text. stdin is read only for `-`.

    Raises:
        click.UsageError: None is given, or two are.
        InvalidRequest: It can't be read, isn't text, or is empty.
        PayloadTooLarge: It is larger than a request may be.
    """
    if (prompt is None) == (prompt_file is None):
        raise click.UsageError(
            'say what is to be done: remit run "make the failing test pass", or give --prompt-file FILE'
            if prompt is None
            else "give a prompt or --prompt-file, not both"
        )
    if prompt_file is not None:
        return _checked(_decode(_read_file(prompt_file), str(prompt_file)), str(prompt_file))
    if prompt == "-":
        return _checked(_decode(sys.stdin.buffer.read(MAX_TEXT_BYTES + 1), "stdin"), "stdin")
    return _checked(prompt or "", "the prompt")


def _read_file(path: Path) -> bytes:
    if path == Path("-"):
        return sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
    if path.is_dir():
        raise InvalidRequest(f"{path} is a folder; name a text file with --prompt-file", param="prompt")
    try:
        with path.open("rb") as file:
            return file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(
            f"the prompt file {path} can't be read: {error.strerror or error}", param="prompt"
        ) from None


def _decode(data: bytes, where: str) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise PayloadTooLarge(
            f"{where} is larger than a request may be ({MAX_TEXT_BYTES:,} bytes); put long material into "
            "files of the workspace and name them in the prompt",
            param="prompt",
            bound=MAX_TEXT_BYTES,
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{where} isn't UTF-8 text (byte {error.start}); give it as text", param="prompt"
        ) from None
    if "\0" in text:
        raise InvalidRequest(f"{where} isn't text: it holds NUL bytes", param="prompt")
    return text


def _checked(text: str, where: str) -> str:
    if not text.strip():
        raise InvalidRequest(f"{where} is empty: say what is to be done", param="prompt")
    return text
