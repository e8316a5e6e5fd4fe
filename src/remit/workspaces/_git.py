"""Git as the node runs it: nothing that a repository planted runs, and nothing of the user's is written.

Node-side git works on a git folder of the node's own (`make_git_folder`), whose config, attributes and
excludes the node wrote; the user's objects are only read, through `objects/info/alternates`. What the user's
git folder says is read as data (`_repository.py`), never by a git that takes its config from there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remit.errors import NodeError
from remit.workspaces.keeper._git_folder import write_alternates

__all__ = ["NEUTRAL_ATTRIBUTES", "Git", "GitError", "make_git_folder"]

NEUTRAL_ATTRIBUTES = "* -text -eol -filter -ident -working-tree-encoding !diff !merge !export-subst\n"
"""For `info/attributes`, which wins over every `.gitattributes`: bytes are taken as they are laid out."""

_TIMEOUT_MS = 300_000
# Said in the environment too, where it wins over any config file: a second wall behind the folder of our own.
_SETTINGS = {
    "safe.directory": "*",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "core.pager": "cat",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.quotePath": "true",
    "core.sshCommand": "false",
    "diff.ignoreSubmodules": "all",
    "submodule.recurse": "false",
    "protocol.allow": "never",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "color.ui": "false",
    "i18n.logOutputEncoding": "UTF-8",
}


class GitError(NodeError):
    """A git command of the node's failed; `fields["exit_code"]` and a short `detail` say how."""

    code = "git"


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """Runs git with a fixed environment; holds no state but where the program is."""

    executable: str

    @classmethod
    def find(cls) -> Git:
        """The git on this machine's PATH.

        Raises:
            NodeError: There is none; the message says what to install.
        """
        executable = shutil.which("git")
        if executable is None:
            raise NodeError(
                "git isn't installed on this machine; install it (for example: apt-get install git)"
            )
        return cls(executable=executable)

    async def run(
        self,
        *arguments: str,
        git_dir: Path | None = None,
        work_tree: Path | None = None,
        index: Path | None = None,
        stdin: bytes = b"",
        extra: Mapping[str, str] | None = None,
        allowed: Sequence[int] = (0,),
        timeout_ms: int = _TIMEOUT_MS,
    ) -> bytes:
        """Run one git command and return what it printed.

        Args:
            arguments: The subcommand and its arguments.
            git_dir: A git folder that the node made. None: a command that needs no repository.
            work_tree: The working tree; commands run there.
            index: The index file; None: the one in `git_dir`.
            stdin: What the command reads.
            extra: More environment, such as fixed dates.
            allowed: Exit codes that are an answer and not a failure.
            timeout_ms: After this the command is killed.

        Raises:
            GitError: It exited otherwise, or took too long.

        Cancellation: the command is killed and reaped first.
        """
        environment = self._environment(git_dir, work_tree, index) | dict(extra or {})
        process = await asyncio.create_subprocess_exec(
            self.executable,
            "--no-pager",
            *arguments,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=str(work_tree or git_dir or "/"),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                stdout, stderr = await process.communicate(stdin or None)
        except TimeoutError:
            raise GitError(
                f"git {arguments[0]} took longer than {timeout_ms} ms", detail="timed out"
            ) from None
        finally:
            await _reap(process)
        if process.returncode not in allowed:
            detail = stderr.decode("utf-8", "replace").strip()[-400:]
            raise GitError(
                f"git {arguments[0]} failed: {detail or 'no reason given'}",
                exit_code=process.returncode,
                detail=detail,
            )
        return stdout

    def _environment(
        self, git_dir: Path | None, work_tree: Path | None, index: Path | None
    ) -> dict[str, str]:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.devnull,
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_EDITOR": "false",
            "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
        }
        for number, (name, value) in enumerate(_SETTINGS.items()):
            environment[f"GIT_CONFIG_KEY_{number}"] = name
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        for name, path in (("GIT_DIR", git_dir), ("GIT_WORK_TREE", work_tree), ("GIT_INDEX_FILE", index)):
            if path is not None:
                environment[name] = str(path)
        return environment


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Leave no git behind, whatever ended the wait."""
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
        await process.wait()


def make_git_folder(
    folder: Path,
    *,
    head: str | None = None,
    object_format: str = "sha1",
    settings: Mapping[str, str] | None = None,
    alternates: Sequence[Path] = (),
    excludes: str = "",
    attributes: str = NEUTRAL_ATTRIBUTES,
) -> Path:
    """Make a git folder whose every file the node wrote. It has no references, remotes or hooks.

    Args:
        folder: Where; must not exist.
        head: The commit at which HEAD stands; None: there are no commits.
        object_format: `sha1` or `sha256`.
        settings: More config, `section.key` to value. Values go into the file as they are: only ours.
        alternates: Object stores to read from.
        excludes: The text of `info/exclude`.
        attributes: The text of `info/attributes`.
    """
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (folder / name).mkdir(parents=True)
    sha256 = object_format == "sha256"
    config = {"core.repositoryformatversion": "1" if sha256 else "0", "core.bare": "false"}
    config |= {"extensions.objectformat": "sha256"} if sha256 else {}
    config |= dict(settings or {})
    (folder / "config").write_text(_render_config(config))
    (folder / "info/attributes").write_text(attributes, "utf-8", "surrogateescape")
    (folder / "info/exclude").write_text(excludes, "utf-8", "surrogateescape")
    write_alternates(folder, alternates)
    (folder / "HEAD").write_text(f"{head}\n" if head else "ref: refs/heads/main\n")
    return folder


def _render_config(settings: Mapping[str, str]) -> str:
    lines: list[str] = []
    for name, value in settings.items():
        section, _, key = name.partition(".")
        lines.append(f'[{section}]\n\t{key} = "{value}"\n')
    return "".join(lines)
