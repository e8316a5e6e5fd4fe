"""What came of it: the terminal, the patch, the receipt."""

from remit.results._commit_message import commit_message
from remit.results._patch import patch_artifact, summarise_snapshot
from remit.results._receipt import write_receipt
from remit.results._repairs import repaired_paths
from remit.results._terminal import exit_code, final_terminal
from remit.results._webhook import (
    RETRY_AFTER_S,
    Network,
    WebhookTarget,
    check_target,
    may_reach,
    read_target,
    read_webhook_secret,
    webhook_body,
    webhook_headers,
    webhook_id,
)

__all__ = [
    "RETRY_AFTER_S",
    "Network",
    "WebhookTarget",
    "check_target",
    "commit_message",
    "exit_code",
    "final_terminal",
    "may_reach",
    "patch_artifact",
    "read_target",
    "read_webhook_secret",
    "repaired_paths",
    "summarise_snapshot",
    "webhook_body",
    "webhook_headers",
    "webhook_id",
    "write_receipt",
]
