"""Trees as data: to draw them at random, lay them out, change one into another, and read them back."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st

Node = tuple[str, bytes]
"""(`100644` | `100755` | `120000`, content or link target)"""
Tree = dict[str, Node]

_NAMES = st.one_of(
    st.sampled_from(
        ["a", "b", "c", "dir", "A", "x.py", "with space", "tab\t", "new\nline", 'quo"te', "back\\slash"]
    ),
    st.sampled_from(
        ["-dash", "#hash", "!bang", "*", "[x]", "caf\udce9", "\u00fcml", "\u2028", ".hidden", "a.", ":x", "~"]
    ),
)
_LINES = st.lists(
    st.sampled_from(
        [b"one\n", b"two\r\n", b"three\r", b"\n", b"  indented\n", b"-- x\n", b"+y\n", b"\\ No newline\n"]
    ),
    max_size=12,
)
_TEXT = st.builds(
    lambda lines, end: b"".join(lines) + end, _LINES, st.sampled_from([b"", b"last", b"\r", b"\xef\xbb\xbf"])
)
_CONTENT = st.one_of(_TEXT, st.binary(max_size=40), st.sampled_from([b"", b"\x00" * 20, b"x" * 5000]))
_NODES = st.one_of(
    st.tuples(st.sampled_from(["100644", "100755"]), _CONTENT),
    st.tuples(
        st.just("120000"), st.sampled_from([b"else", b"../out", b"/etc/passwd", b"no\nwhere", b"\xc3\xbc"])
    ),
)
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)


def without_clashes(drawn: Mapping[str, Node]) -> Tree:
    """The tree without what would lie below a file or a link."""
    tree: Tree = {}
    for path in sorted(drawn, key=lambda path: path.count("/")):
        parts = path.split("/")
        above = {"/".join(parts[:length]) for length in range(1, len(parts))}
        if not above & tree.keys():
            tree[path] = drawn[path]
    return tree


TREES = st.dictionaries(_PATHS, _NODES, max_size=6).map(without_clashes)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """A tree, and what became of it: some paths kept, moved, edited, removed, some new."""
    base = draw(TREES)
    result: Tree = dict(draw(TREES))
    for path, node in base.items():
        fate = draw(st.sampled_from(["keep", "drop", "move", "edit", "mode"]))
        if fate == "keep":
            result[path] = node
        elif fate == "move":
            result[draw(_PATHS)] = node
        elif fate == "edit" and node[0] != "120000":
            result[path] = (node[0], node[1] + b"edited\n")
        elif fate == "mode" and node[0] != "120000":
            result[path] = ("100755" if node[0] == "100644" else "100644", node[1])
    return base, without_clashes(result)


def lay_out(tree: Tree, folder: Path) -> Path:
    """Write a tree into a folder that may hold another one, whose files are removed first."""
    folder.mkdir(parents=True, exist_ok=True)
    now = read_back(folder)
    for path in now.keys() - tree.keys():
        (folder / path).unlink()
    for parent, _, _ in os.walk(folder, topdown=False):
        if Path(parent) != folder and not os.listdir(parent):
            os.rmdir(parent)
    for path, node in tree.items():
        if now.get(path) != node:
            _write(folder / path, node)
    return folder


def _write(path: Path, node: Node) -> None:
    mode, content = node
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        path.unlink()
    if mode == "120000":
        os.symlink(content, os.fsencode(path))
    else:
        path.write_bytes(content)
        path.chmod(0o755 if mode == "100755" else 0o644)


def read_back(folder: Path) -> Tree:
    """What lies in a folder; empty folders don't count."""
    tree: Tree = {}
    for parent, folders, names in os.walk(folder):
        for name in [*names, *folders]:
            path = Path(parent) / name
            info = path.lstat()
            key = str(path.relative_to(folder))
            if stat.S_ISLNK(info.st_mode):
                tree[key] = ("120000", os.readlink(os.fsencode(path)))
            elif stat.S_ISREG(info.st_mode):
                tree[key] = ("100755" if info.st_mode & 0o100 else "100644", path.read_bytes())
    return tree


def copy_tree(source: Path, target: Path) -> Path:
    """A copy with links as links."""
    shutil.copytree(source, target, symlinks=True)
    return target
