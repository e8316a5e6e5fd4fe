"""The atoms: ids, clocks, money, strict JSON, text and secrets."""

from remit.primitives._arguments import check_count, check_flag, check_has, check_length, check_text
from remit.primitives._cancels import once_more
from remit.primitives._clock import Clock, SystemClock, format_time, parse_time
from remit.primitives._ids import Ids, SystemIds, is_run_id
from remit.primitives._json import JsonValue, StrictJsonError, dump_json, load_json
from remit.primitives._money import MICROS_PER_USD, micros_from_usd, usd_from_micros
from remit.primitives._patch_names import patched_path, read_patch_name
from remit.primitives._redaction import Redactor, Secret
from remit.primitives._text import clean_json, clean_text, escape_separators, show_hidden

__all__ = [
    "MICROS_PER_USD",
    "Clock",
    "Ids",
    "JsonValue",
    "Redactor",
    "Secret",
    "StrictJsonError",
    "SystemClock",
    "SystemIds",
    "check_count",
    "check_flag",
    "check_has",
    "check_length",
    "check_text",
    "clean_json",
    "clean_text",
    "dump_json",
    "escape_separators",
    "format_time",
    "is_run_id",
    "load_json",
    "micros_from_usd",
    "once_more",
    "parse_time",
    "patched_path",
    "read_patch_name",
    "show_hidden",
    "usd_from_micros",
]
