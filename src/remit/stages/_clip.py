"""Text cut to a size, with its beginning and end kept."""

from __future__ import annotations


def clip_middle(text: str, *, max_chars: int) -> str:
    """The text, or its first and last lines with a mark between them that says how much is left out.

    The cut is at line ends where the lines allow it. The mark comes on top of `max_chars`.
    """
    if len(text) <= max_chars:
        return text
    head_chars = max_chars // 2
    tail_chars = max_chars - head_chars
    head, tail = text[:head_chars], text[len(text) - tail_chars :]
    # Only up to half of a part is given up to get to a line's end.
    if (end := head.rfind("\n")) >= head_chars // 2:
        head = head[: end + 1]
    if 0 <= (start := tail.find("\n")) < tail_chars // 2:
        tail = tail[start + 1 :]
    left_out = len(text) - len(head) - len(tail)
    break_ = "" if head.endswith("\n") else "\n"
    return f"{head}{break_}[… {left_out} characters left out …]\n{tail}"


def clip_end(text: str, *, max_chars: int) -> str:
    """The end of the text, at most `max_chars` of it, from the start of a line where that is near."""
    if len(text) <= max_chars:
        return text
    tail = text[len(text) - max_chars :]
    if 0 <= (start := tail.find("\n")) < max_chars // 2:
        tail = tail[start + 1 :]
    return f"[…]\n{tail}"


def clip_line(text: str, *, max_chars: int) -> str:
    """One printable line of at most `max_chars`."""
    line = "".join(character if character.isprintable() else " " for character in text[: max_chars + 1])
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"
