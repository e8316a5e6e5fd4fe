"""Loading SDKs early: over a second of imports, beside all else that a start waits for."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any

_MODULES = {
    "openai": "remit.models._responses_warm_up",
    "openai-chat": "remit.models._openai_warm_up",
    "openai-compatible": "remit.models._openai_warm_up",
    "azure": "remit.models._openai_warm_up",
    "openrouter": "remit.models._openai_warm_up",
    "ollama": "remit.models._ollama_sdk",
    "bedrock": "remit.models._bedrock_http",
    "anthropic": "remit.models._anthropic_sdk",
    "google": "remit.models._google_sdk",
    "vertex": "remit.models._google_sdk",
}
"""Kind of provider -> what its adapter loads when it is prepared."""


@contextmanager
def loading_early(kinds: Iterable[str]) -> Generator[None]:
    """Load what some kinds of provider need, in a thread that has ended when the block has.

    What can't be loaded is told by the adapter that needs it, in its own words.
    """
    modules = dict.fromkeys(_MODULES[kind] for kind in kinds if kind in _MODULES)
    if not modules:
        yield
        return
    thread = threading.Thread(target=_load, args=(tuple(modules),), name="remit-models-early")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _load(modules: tuple[str, ...]) -> None:
    for name in modules:
        with suppress(Exception):
            module: Any = importlib.import_module(name)
            warm_up = getattr(module, "warm_up", None)
            if warm_up is not None:
                warm_up()
