"""A host looks at pools and options when a run is asked for, before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_kit import JumpingClock
from remit.admission import Binding, StageBinding
from remit.config import Config, load_config
from remit.errors import ConfigError
from remit.host._pools import Pools
from remit.primitives import Redactor, SystemIds
from remit.usage import PriceBook

FILE = """
[providers.one]
kind = "openai"
api_key_env = "ONE_KEY"
[providers.two]
kind = "anthropic"
api_key_env = "TWO_KEY"
[pools.both]
members = [{ model = "one:gpt-5.2" }, { model = "two:claude-opus-4-7", order = 2 }]
"""


def pools(config: Config) -> Pools:
    return Pools(config, prices=PriceBook(), redactor=Redactor([]), clock=JumpingClock(), ids=SystemIds())


def binding(**options: object) -> Binding:
    return Binding(name="b", profile="direct", work=StageBinding(pool="both", options=dict(options)))


def test_options_of_a_binding_are_refused_at_the_call(tmp_path: Path) -> None:
    """An option that the second of two members would drop is refused, by name, before a run begins."""
    pytest.importorskip("anthropic", reason="the extra `anthropic` isn't installed")
    file = tmp_path / "remit.toml"
    file.write_text(FILE)
    environment = {"ONE_KEY": "sk-one-1", "TWO_KEY": "sk-two-2", "REMIT_HOME": str(tmp_path / "data")}
    config = load_config(environment=environment, folder=tmp_path)
    asked = pools(config)
    assert set(asked.of(binding(reasoning_effort="high"))) == {"work"}
    with pytest.raises(ConfigError, match="claude-opus-4-7 takes no `verbosity`"):
        asked.of(binding(verbosity="low"))
    with pytest.raises(ConfigError, match="claude-opus-4-7 takes no `temperature`"):
        asked.of(binding(temperature=0.5))
