"""Where AWS's own tools look for an account's credentials and its region: variables, then a profile's files.

Roles, single sign-on and what a machine is given by its cloud need more than reading, and often a network.
For those `aws configure export-credentials` makes variables.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

from remit.models import AwsCredentials
from remit.primitives import Secret

__all__ = ["AWS_KEY_VARIABLE", "find_aws_credentials", "find_aws_region", "no_credentials"]

AWS_KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"


def find_aws_credentials(environment: Mapping[str, str]) -> AwsCredentials | None:
    """The credentials that lie there as they are; None: there are none, or they have to be made first."""
    said = {name.lower(): environment[name].strip() for name in environment if name.startswith("AWS_")}
    return _credentials(said) or _credentials(_profile(environment))


def find_aws_region(environment: Mapping[str, str]) -> str | None:
    """The account's usual region."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if environment.get(name, "").strip():
            return environment[name].strip()
    return _profile(environment).get("region") or None


def no_credentials(environment: Mapping[str, str]) -> str:
    """What to do where there are none."""
    profile = environment.get("AWS_PROFILE", "").strip()
    named = f" --profile {profile}" if profile else ""
    return (
        f"set {AWS_KEY_VARIABLE} (an API key of Bedrock), or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
        f'with a role or single sign-on: eval "$(aws configure export-credentials{named} --format env)"'
    )


def _credentials(said: Mapping[str, str]) -> AwsCredentials | None:
    key_id, secret = said.get("aws_access_key_id", ""), said.get("aws_secret_access_key", "")
    if not key_id or not secret:
        return None
    token = said.get("aws_session_token", "")
    return AwsCredentials(
        access_key_id=key_id, secret_access_key=Secret(secret), session_token=Secret(token) if token else None
    )


def _profile(environment: Mapping[str, str]) -> dict[str, str]:
    """What both files say of the profile; the credentials' own file wins."""
    name = environment.get("AWS_PROFILE", "").strip() or "default"
    folder = Path(environment.get("HOME") or "/nonexistent") / ".aws"
    config = environment.get("AWS_CONFIG_FILE") or folder / "config"
    shared = environment.get("AWS_SHARED_CREDENTIALS_FILE") or folder / "credentials"
    section = name if name == "default" else f"profile {name}"
    return {**_section(Path(config), section), **_section(Path(shared), name)}


def _section(path: Path, name: str) -> dict[str, str]:
    """A table of one of the files; empty where there is none, or where it can't be read."""
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(path.expanduser().read_text("utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    return dict(parser.items(name)) if parser.has_section(name) else {}
