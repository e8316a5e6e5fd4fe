"""What a user's repository says, read as data: no git takes its config, and nothing in it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remit.errors import NodeError
from remit.workspaces._git import NEUTRAL_ATTRIBUTES, Git, make_git_folder
from remit.workspaces._known_pins import KnownBases

__all__ = [
    "Repository",
    "find_git_root",
    "line_end_settings",
    "read_reference",
    "read_repository",
    "read_settings",
    "shadow_repository",
]

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
# What `git check-ref-format` takes: the name is written into files of ours.
_REFERENCE = re.compile(r"refs/(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|\Z)))[^\x00-\x20\x7f~^:?*\[\\]+(?<![./])\Z")
_LINKS_AT_MOST = 5
_PORTABLE_SETTINGS = ("core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What was read of a user's repository, as data."""

    root: Path
    """The folder that holds `.git`."""
    git_dir: Path
    """The git folder of this working tree."""
    common_dir: Path
    """Where objects and references are; differs from `git_dir` in a linked worktree."""
    branch: str | None
    """`refs/heads/NAME`; None: HEAD is detached."""
    head: str | None
    """The commit; None: there are no commits yet."""
    object_format: str = "sha1"
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """What git found out about the file system: file modes, symlinks, case."""
    line_ends: Mapping[str, str] = field(default_factory=dict[str, str])
    """How line ends are laid out, where the repository's own config says so."""

    @property
    def objects(self) -> Path:
        """The user's object store; only ever read."""
        return self.common_dir / "objects"

    @property
    def linked(self) -> bool:
        """Whether `.git` is a file: a linked worktree or a submodule."""
        return not (self.root / ".git").is_dir()


def find_git_root(folder: Path) -> Path | None:
    """The nearest folder, this one or above, that holds a `.git`; None: not in a repository."""
    for candidate in (folder, *folder.parents):
        if os.path.lexists(candidate / ".git"):
            return candidate
    return None


async def read_repository(git: Git, root: Path, *, known: KnownBases | None = None) -> Repository:
    """Read what a user's repository says, without letting it run anything.

    Args:
        git: The program.
        root: The folder that holds `.git`.
        known: What was read before; None: nothing.

    Raises:
        NodeError: `.git` is there, but isn't a repository; the message names what is wrong.
    """
    git_dir, common_dir = _find_git_folders(root)
    settings = await read_settings(git, common_dir / "config", known=known)
    if settings.get("extensions.refstorage", "files") != "files":
        raise NodeError(
            f"{root}: references stored as {settings['extensions.refstorage']!r} aren't supported yet"
        )
    object_format = settings.get("extensions.objectformat", "sha1")
    if object_format not in {"sha1", "sha256"}:
        raise _broken(root, f"its object format is {object_format!r}")
    branch, head = _read_head(root, git_dir, common_dir)
    return Repository(
        root=root,
        git_dir=git_dir,
        common_dir=common_dir,
        branch=branch,
        head=head,
        object_format=object_format,
        settings={name: _truth(settings[name]) for name in _PORTABLE_SETTINGS if name in settings},
        line_ends=line_end_settings(settings),
    )


def shadow_repository(
    repository: Repository,
    folder: Path,
    *,
    objects: Sequence[Path] | None = None,
    excludes: str = "",
    attributes: str = NEUTRAL_ATTRIBUTES,
    settings: Mapping[str, str] | None = None,
) -> Path:
    """A git folder of the node's own that stands at the repository's HEAD.

    It reads the repository's objects, or those of `objects`. Where something is to be written it mustn't read
    the repository's: git renews the time of an object that it finds there instead of writing it.
    """
    made = make_git_folder(
        folder,
        head=repository.head,
        object_format=repository.object_format,
        settings=dict(repository.settings) | dict(settings or {}),
        alternates=[repository.objects] if objects is None else objects,
        excludes=excludes,
        attributes=attributes,
    )
    shallow = repository.common_dir / "shallow"
    if shallow.is_file():
        (made / "shallow").write_text("".join(f"{line}\n" for line in _shallow_lines(shallow)))
    return made


def _shallow_lines(shallow: Path) -> list[str]:
    return [line for line in shallow.read_text("ascii", "replace").split("\n") if _COMMIT.match(line)]


def line_end_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """What a config says of line ends: `core.autocrlf` and `core.eol`, in words of ours; empty: nothing."""
    found: dict[str, str] = {}
    if "core.autocrlf" in settings:
        value = settings["core.autocrlf"].lower()
        found["core.autocrlf"] = "input" if value == "input" else _truth(value)
    if settings.get("core.eol", "").lower() in {"lf", "crlf", "native"}:
        found["core.eol"] = settings["core.eol"].lower()
    return found


def _truth(value: str) -> str:
    """`true` or `false`, and nothing else: the text goes into a config file of ours."""
    return "false" if value.lower() in {"false", "no", "off", "0", ""} else "true"


def _find_git_folders(root: Path) -> tuple[Path, Path]:
    """The git folder of the working tree, and the one that holds objects and references."""
    git_dir = root / ".git"
    if git_dir.is_file():
        text = _read_line(git_dir)
        if not text.startswith("gitdir:"):
            raise _broken(root, "the file .git doesn't name a git folder")
        git_dir = root / text.removeprefix("gitdir:").strip()
    git_dir = Path(os.path.realpath(git_dir))
    if not git_dir.is_dir():
        raise _broken(root, f"its git folder {git_dir} isn't there")
    common_dir = git_dir
    if (git_dir / "commondir").is_file():
        common_dir = Path(os.path.realpath(git_dir / _read_line(git_dir / "commondir")))
    if not (git_dir / "HEAD").is_file():
        raise _broken(root, f"{git_dir / 'HEAD'} isn't there")
    for needed in (common_dir / "objects", common_dir / "refs"):
        if not needed.is_dir():
            raise _broken(root, f"{needed} isn't there")
    return git_dir, common_dir


async def read_settings(git: Git, config: Path, *, known: KnownBases | None = None) -> dict[str, str]:
    """A config file as data: `section.key` to value, no includes followed; empty where there is none."""
    if not os.path.isfile(config) or not os.access(config, os.R_OK):  # noqa: ASYNC240  two looks
        return {}
    remembered = known.find_settings(config) if known is not None else None
    if remembered is not None:
        return dict(remembered)
    facts = KnownBases.facts_of(config)
    settings = await _list_settings(git, config)
    if known is not None:
        known.keep_settings(config, facts, settings)
    return dict(settings)


async def _list_settings(git: Git, config: Path) -> dict[str, str]:
    listed = await git.run("config", "--file", str(config), "--no-includes", "--null", "--list")
    entries = (entry.partition(b"\n") for entry in listed.split(b"\0") if entry)
    # Last one wins, as in git; a bare key means true.
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace") if separator else "true"
        for key, separator, value in entries
    }


def _read_head(root: Path, git_dir: Path, common_dir: Path) -> tuple[str | None, str | None]:
    text = _read_line(git_dir / "HEAD")
    if _COMMIT.match(text):
        return None, text
    if not text.startswith("ref:"):
        raise _broken(root, "HEAD is neither a commit nor a reference")
    branch = text.removeprefix("ref:").strip()
    if not _REFERENCE.match(branch):
        raise _broken(root, "HEAD names a reference that git wouldn't take")
    name = branch
    for _ in range(_LINKS_AT_MOST):
        value = read_reference(common_dir, name)
        if value is None or _COMMIT.match(value):
            return branch, value
        if not value.startswith("ref:"):
            break
        name = value.removeprefix("ref:").strip()
    raise _broken(root, f"the reference {branch} doesn't lead to a commit")


def read_reference(common_dir: Path, name: str) -> str | None:
    """What a reference holds, loose or packed; None: there is none of that name."""
    if not _REFERENCE.match(name):
        return None
    loose = common_dir / name
    if loose.is_file():
        return _read_line(loose)
    packed = common_dir / "packed-refs"
    if packed.is_file():
        wanted = f" {name}"
        for line in packed.read_text("utf-8", "surrogateescape").split("\n"):
            if line.endswith(wanted) and not line.startswith(("#", "^")):
                return line[: -len(wanted)]
    return None


def _read_line(path: Path) -> str:
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        return file.readline(4096).rstrip("\n")


def _broken(root: Path, why: str) -> NodeError:
    return NodeError(f"{root} has a .git, but it isn't a working repository: {why}", reason="unavailable")
