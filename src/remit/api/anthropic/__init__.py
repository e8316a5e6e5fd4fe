"""The Anthropic door: Messages and the counting of tokens, for clients that know no other API."""

from remit.api.anthropic._errors import ANTHROPIC
from remit.api.anthropic._messages import OPERATIONS

__all__ = ["ANTHROPIC", "OPERATIONS"]
