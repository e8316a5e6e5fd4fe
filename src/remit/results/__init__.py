"""What came of it: the terminal, the patch, the receipt."""

from remit.results._commit_message import commit_message
from remit.results._patch import patch_artifact, summarise_snapshot
from remit.results._receipt import write_receipt
from remit.results._repairs import repaired_paths
from remit.results._terminal import exit_code, final_terminal

__all__ = [
    "commit_message",
    "exit_code",
    "final_terminal",
    "patch_artifact",
    "repaired_paths",
    "summarise_snapshot",
    "write_receipt",
]
