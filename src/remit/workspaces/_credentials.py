"""What is never shown in a sandbox, whatever toolchain folder it lies in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["credential_folders", "credentials_in"]

_HOME_FOLDERS: Final = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/op",
    ".config/rclone",
    ".config/containers",
    ".docker",
    ".kube",
    ".oci",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/python_keyring",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".claude",
    ".codex",
    ".config/remit",
    ".terraform.d",
)
"""Below a home folder; nothing in one of these is shown."""

_FILES: Final = (
    ".netrc",
    ".pypirc",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".git-credentials",
    ".config/git/credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/go/env",
    ".condarc",
    ".sdkman/etc/config",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".config/pypoetry/auth.toml",
    ".config/uv/uv.toml",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".env",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
)
"""Below a home folder."""

_NAMES: Final = (
    ".netrc",
    ".pypirc",
    ".npmrc",
    ".git-credentials",
    "credentials",
    "credentials.toml",
    "pip.conf",
    "auth.json",
    "auth.toml",
    ".env",
    ".condarc",
    ".yarnrc",
    ".yarnrc.yml",
    "etc/npmrc",
    "settings-security.xml",
    "gradle.properties",
    "init.gradle",
)
"""In a folder that is shown, wherever it lies (an environment's own `pip.conf` may hold a token)."""
_WHERE_TOLD: Final = (
    ("settings.xml", (b"<password", b"<passphrase", b"<privateKey")),
    ("conf/settings.xml", (b"<password", b"<passphrase", b"<privateKey")),
    ("config.toml", (b"token", b"secret", b"password")),
    ("config", (b"token", b"secret", b"password")),
    ("pip.conf", (b"@",)),
    ("uv.toml", (b"@", b"password")),
)
"""Files that programs need, covered where they tell one of these."""
_READ_AT_MOST: Final = 262_144


def credential_folders(homes: Iterable[Path]) -> tuple[Path, ...]:
    """Folders of which no part is shown."""
    return tuple(home / name for home in homes for name in _HOME_FOLDERS)


def credentials_in(folder: Path, homes: Iterable[Path]) -> tuple[Path, ...]:
    """Credential files and folders that exist inside `folder`, to be covered."""
    homes = tuple(homes)
    named = [home / name for home in homes for name in (*_FILES, *_HOME_FOLDERS)]
    candidates = [path for path in named if path.is_relative_to(folder)]
    candidates += [folder / name for name in _NAMES]
    candidates += [folder / name for name, words in _WHERE_TOLD if _tells(folder / name, words)]
    return tuple(
        dict.fromkeys(path for path in candidates if os.path.lexists(path) and not path.is_symlink())
    )


def _tells(path: Path, words: tuple[bytes, ...]) -> bool:
    try:
        with path.open("rb") as file:
            text = file.read(_READ_AT_MOST) if path.is_file() else b""
    except OSError:
        return False
    # The comments of a file as it is delivered tell how a password would be given.
    text = re.sub(rb"<!--.*?-->", b"", text, flags=re.DOTALL)
    return any(word in text for word in words)
