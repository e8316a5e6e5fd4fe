"""Signatures of requests to AWS, and where the credentials of an account are looked for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from remit.config import Config, load_config
from remit.errors import ConfigError
from remit.models import AwsCredentials
from remit.models._aws_signing import sign
from remit.primitives import Secret

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)


def account(token: str | None = None) -> AwsCredentials:
    return AwsCredentials(
        access_key_id="AKIDEXAMPLE",
        secret_access_key=Secret(SECRET),
        session_token=None if token is None else Secret(token),
    )


def test_the_vendors_own_example() -> None:
    """The signature that the vendor's documentation works out step by step."""
    headers = sign(
        account(),
        method="GET",
        host="iam.amazonaws.com",
        path="/",
        query="Action=ListUsers&Version=2010-05-08",
        headers={"content-type": "application/x-www-form-urlencoded; charset=utf-8"},
        body=b"",
        region="us-east-1",
        service="iam",
        now=NOW,
    )
    assert headers == {
        "x-amz-date": "20150830T123600Z",
        "authorization": (
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
            "SignedHeaders=content-type;host;x-amz-date, "
            "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        ),
    }


def test_what_the_vendors_own_client_signs() -> None:
    """A model whose name is encoded in the path, a session's token, a body beyond ASCII."""
    headers = sign(
        AwsCredentials(
            access_key_id="AKID", secret_access_key=Secret("sec/ret+"), session_token=Secret("tok/en=")
        ),
        method="POST",
        host="bedrock-runtime.us-east-1.amazonaws.com",
        path="/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream",
        headers={"content-type": "application/json"},
        body='{"a":"Größe"}'.encode(),
        region="us-east-1",
        service="bedrock",
        now=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    signature = "9ac492dc7ec5e0310e839f6f5f85b0a25679575a25ab7f68a023e39f0d9292af"
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKID/20260102/us-east-1/bedrock/aws4_request, "
        f"SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature={signature}"
    )


def config_of(folder: Path, environment: dict[str, str], **table: Any) -> Config:
    overrides = {"providers": {"aws": {"kind": "bedrock", **table}}}
    home = folder / "home"
    (home / ".aws").mkdir(parents=True, exist_ok=True)
    return load_config(
        environment={"HOME": str(home), **environment}, folder=folder, repository=None, overrides=overrides
    ).as_owner()


KEYS = {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "secret-of-1"}


def test_variables_of_an_account_are_enough(tmp_path: Path) -> None:
    """Key, secret, token and region as a CI machine is given them; none is shown."""
    environment = {**KEYS, "AWS_SESSION_TOKEN": "token-of-1", "AWS_REGION": "eu-west-1"}
    found = config_of(tmp_path, environment).get_provider("aws")
    assert found.aws is not None
    assert (found.location, found.aws.access_key_id) == ("eu-west-1", "AKIA1")
    assert [secret.reveal() for secret in found.secrets] == ["secret-of-1", "token-of-1"]
    assert "secret-of-1" not in repr(found)
    assert found.url == "https://bedrock-runtime.eu-west-1.amazonaws.com"


@pytest.mark.parametrize("profile", [None, "work"])
def test_a_profile_in_the_files_is_enough(tmp_path: Path, profile: str | None) -> None:
    """`~/.aws`, or where the variables say that the files lie; what stands in either, the region too."""
    files = tmp_path / "elsewhere"
    files.mkdir()
    (files / "credentials").write_text(
        "[default]\naws_access_key_id = AKIA-D\naws_secret_access_key = secret-d\n"
        "[work]\naws_access_key_id=AKIA-W\naws_secret_access_key=secret%w\naws_session_token = token-w\n"
    )
    (files / "config").write_text("[default]\nregion = us-west-2\n[profile work]\nregion = eu-central-1\n")
    environment = {
        "AWS_SHARED_CREDENTIALS_FILE": str(files / "credentials"),
        "AWS_CONFIG_FILE": str(files / "config"),
        **({"AWS_PROFILE": profile} if profile else {}),
    }
    found = config_of(tmp_path, environment).get_provider("aws")
    assert found.aws is not None
    expected = ("eu-central-1", "AKIA-W", "secret%w") if profile else ("us-west-2", "AKIA-D", "secret-d")
    assert (
        found.location,
        found.aws.access_key_id,
        found.aws.secret_access_key.reveal(),
    ) == expected


def test_a_key_of_bedrock_comes_first(tmp_path: Path) -> None:
    """What is named in the file, then its own variable, then the account's."""
    environment = {**KEYS, "AWS_BEARER_TOKEN_BEDROCK": "own", "OTHER": "named", "AWS_REGION": "us-east-1"}
    own = config_of(tmp_path, environment).get_provider("aws")
    named = config_of(tmp_path, environment, api_key_env="OTHER", location="eu-west-3").get_provider("aws")
    assert own.api_key is not None
    assert named.api_key is not None
    assert (own.api_key.reveal(), own.aws, named.api_key.reveal()) == ("own", None, "named")
    assert (own.location, named.location) == ("us-east-1", "eu-west-3")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"AWS_REGION": "us-east-1"}, "has no credentials: set AWS_BEARER_TOKEN_BEDROCK"),
        ({**KEYS}, "needs `location`, its region, or AWS_REGION"),
        ({**KEYS, "AWS_SECRET_ACCESS_KEY": " ", "AWS_REGION": "x"}, "has no credentials"),
        ({"AWS_PROFILE": "sso", "AWS_REGION": "x"}, "export-credentials --profile sso --format env"),
        ({**KEYS, "AWS_REGION": "us east"}, "location"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, environment: dict[str, str], said: str) -> None:
    """Which variables to set, and what to do with a role or single sign-on, also beside broken files."""
    aws = tmp_path / "home/.aws"
    aws.mkdir(parents=True)
    (aws / "credentials").write_bytes(b"[sso]\naws_access_key_id = half\n\xff")
    (aws / "config").write_text("[profile sso]\nsso_session = x\nno sense at all\n")
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, environment).get_provider("aws")
    assert said in caught.value.message
