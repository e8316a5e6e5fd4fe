"""What is wanted: a caller's body as a valid, bounded request, its fingerprint, and its limits."""

from remit.requests._bounds import (
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    MAX_METADATA_BYTES,
    MAX_METADATA_DEPTH,
    MAX_NAME_CHARS,
    MAX_OPTIONS_BYTES,
    MAX_PARTS,
    MAX_TEXT_BYTES,
    MAX_WEBHOOK_CHARS,
)
from remit.requests._branches import check_branch_name, default_branch
from remit.requests._fingerprint import fingerprint
from remit.requests._limits import narrow_limits, parse_duration_ms, resolve_limits
from remit.requests._parse import ParsedRequest, parse_request

__all__ = [
    "MAX_IMAGES",
    "MAX_IMAGE_BYTES",
    "MAX_METADATA_BYTES",
    "MAX_METADATA_DEPTH",
    "MAX_NAME_CHARS",
    "MAX_OPTIONS_BYTES",
    "MAX_PARTS",
    "MAX_TEXT_BYTES",
    "MAX_WEBHOOK_CHARS",
    "ParsedRequest",
    "check_branch_name",
    "default_branch",
    "fingerprint",
    "narrow_limits",
    "parse_duration_ms",
    "parse_request",
    "resolve_limits",
]
