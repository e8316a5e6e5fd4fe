"""Who is asked: the model port, pools, provider adapters, and the scripted provider."""

from remit.models._build import Providers, build_pool
from remit.models._catalog import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    DEFAULT_WINDOW_TOKENS,
    find_window,
    known_efforts,
    known_max_output,
    known_window,
    takes_images,
)
from remit.models._codec import message_from_json, message_to_json
from remit.models._early import loading_early
from remit.models._estimate import estimate_input_tokens, estimate_text_tokens
from remit.models._extras import need_extra
from remit.models._facts import LOCAL_WINDOW_TOKENS, Looked, ModelFacts, look_up
from remit.models._messages import (
    AssistantBlock,
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    message_role,
)
from remit.models._options import check_options
from remit.models._pool import Pool, Prices
from remit.models._port import (
    AttemptFinish,
    AttemptLedger,
    AttemptStart,
    Delta,
    Finish,
    ModelPool,
    ModelReply,
    ModelRequest,
)
from remit.models._serving import describe_table, why_not_served
from remit.models._settings import (
    PROVIDER_KINDS,
    AwsCredentials,
    PoolMember,
    PoolSettings,
    ProviderSettings,
    check_known_kind,
)

__all__ = [
    "DEFAULT_MAX_OUTPUT_TOKENS",
    "DEFAULT_WINDOW_TOKENS",
    "LOCAL_WINDOW_TOKENS",
    "PROVIDER_KINDS",
    "AssistantBlock",
    "AssistantMessage",
    "AttemptFinish",
    "AttemptLedger",
    "AttemptStart",
    "AwsCredentials",
    "Delta",
    "Finish",
    "Looked",
    "Message",
    "ModelFacts",
    "ModelPool",
    "ModelReply",
    "ModelRequest",
    "Pool",
    "PoolMember",
    "PoolSettings",
    "Prices",
    "ProviderSettings",
    "Providers",
    "SystemMessage",
    "TextBlock",
    "ThinkingBlock",
    "ToolCallBlock",
    "ToolResult",
    "ToolResultsMessage",
    "UserMessage",
    "build_pool",
    "check_known_kind",
    "check_options",
    "describe_table",
    "estimate_input_tokens",
    "estimate_text_tokens",
    "find_window",
    "known_efforts",
    "known_max_output",
    "known_window",
    "loading_early",
    "look_up",
    "message_from_json",
    "message_role",
    "message_to_json",
    "need_extra",
    "takes_images",
    "why_not_served",
]
