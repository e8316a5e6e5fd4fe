"""The OpenAI door: Chat Completions, Responses and models, for clients that know no other API."""

from remit.api.openai._chat import OPERATIONS as _CHAT
from remit.api.openai._errors import OPENAI
from remit.api.openai._models import OPERATIONS as MODELS
from remit.api.openai._responses import OPERATIONS as _RESPONSES

OPERATIONS = (*_CHAT, *_RESPONSES)

__all__ = ["MODELS", "OPENAI", "OPERATIONS"]
