"""What the kinds of a review's flags mean, in the words that people are shown."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["FLAG_WORDS"]

FLAG_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "protected": "protected",
        "frozen": "frozen, so it can't be applied",
        "moved": "changed in your files meanwhile",
        "tests": "changes tests",
        "tests-removed": "removes tests",
        "dependencies": "changes dependencies",
        "lock": "changes lock files",
        "binary": "binary",
        "mode": "changes modes",
        "link": "links",
        "skipped": "not part of the patch",
        "ignored": "changed, but in no patch (ignored by git, or caches)",
    }
)
"""By what stands before the colon of a flag."""
