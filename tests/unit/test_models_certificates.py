"""Whose certificates a provider's connections trust, and what is said where those can't be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.errors import ConfigError
from remit.models import ProviderSettings
from remit.models._looking import look_at
from remit.models._sdk_http import make_ssl_context


@pytest.mark.parametrize("configured", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
async def test_certificates_that_cannot_be_read_are_a_setting(
    configured: bool, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R73: the setting or variable is named, with what is wrong; `remit models` says it of that provider."""
    named = tmp_path / "authority.pem"
    if is_there:
        named.write_text("no certificate")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if not configured:
        monkeypatch.setenv("SSL_CERT_FILE", str(named))
    settings = ProviderSettings(
        name="own",
        kind="openai-compatible",
        base_url="https://127.0.0.1:9",
        ca_file=named if configured else None,
    )
    said = "providers.own.ca_file" if configured else "SSL_CERT_FILE"
    with pytest.raises(ConfigError, match=f"^{said}: {named} holds no certificates"):
        make_ssl_context(settings)
    looked = await look_at(settings)
    assert looked.reachable is False
    assert said in looked.why
