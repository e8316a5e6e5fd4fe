"""Reading, writing, moving and deleting one file under a directory handle."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from remit.workspaces.keeper import _paths
from remit.workspaces.keeper._operations import OPERATIONS
from remit.workspaces.keeper._refusals import OperationRefused

Call = Callable[..., dict[str, object]]


@pytest.fixture(params=["openat2", "walk"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace root, with each way of resolving paths."""
    opener = _paths.openat2_beneath if request.param == "openat2" else _paths.walk_beneath
    if request.param == "openat2" and _paths._opener is not _paths.openat2_beneath:
        pytest.skip("this kernel has no openat2")
    monkeypatch.setattr(_paths, "_opener", opener)
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def call(root: Path) -> Generator[Call]:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)

    def run(name: str, **arguments: object) -> dict[str, object]:
        return OPERATIONS[name](fd, arguments)

    yield run
    os.close(fd)


def refused(call: Call, name: str, **arguments: object) -> OperationRefused:
    with pytest.raises(OperationRefused) as caught:
        call(name, **arguments)
    return caught.value


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/etc/passwd", "denied"),
        ("//etc/passwd", "denied"),
        ("../x", "denied"),
        ("a/../../x", "denied"),
        ("a/..", "denied"),
        ("a\0b", "invalid_arguments"),
        ("", "invalid_arguments"),
        (".", "invalid_arguments"),
        ("./", "invalid_arguments"),
        ("x" * 256, "invalid_arguments"),
        ("x/" * 2100, "invalid_arguments"),
        ("a\ud800", "invalid_arguments"),
    ],
)
@pytest.mark.parametrize("name", ["read_file", "write_file", "delete_file", "move_file"])
def test_files_refuse_paths_that_are_not_relative(call: Call, name: str, path: str, status: str) -> None:
    """S55, R34: absolute, escaping and malformed paths are refused, each with its reason."""
    answer = refused(call, name, relative_path=path, content="x", new_relative_path="new")
    assert answer.status == status
    assert len(answer.message) < 300
    answer.message.encode()


@pytest.mark.parametrize("name", ["read_file", "write_file"])
@pytest.mark.parametrize("link", ["/", "/etc", "..", "../outside", "a/../../outside", "/proc/self/root/etc"])
def test_files_do_not_follow_links_out(root: Path, call: Call, name: str, link: str) -> None:
    """R34: a link that leads out is refused, for files that exist and for new ones."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "a").mkdir()
    (root / "link").symlink_to(link)
    (root / "leaf").symlink_to(f"{link}/secret")
    for path in ("link/secret", "link/new", "leaf", "link/passwd"):
        assert refused(call, name, relative_path=path, content="x").status in ("denied", "not_found")
    assert [entry.name for entry in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "secret"


def test_files_follow_links_that_stay_inside(root: Path, call: Call) -> None:
    """R34: links inside work as for any program, a written one stays a link."""
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "docs" / "text").write_text("text\n")
    (root / "docs" / "deep" / "up").symlink_to("../text")
    (root / "folder").symlink_to("docs/deep")
    (root / "new").symlink_to("docs/made")
    assert call("read_file", relative_path="folder/up")["content"] == "text\n"
    assert call("write_file", relative_path="folder/up", content="other")["changed"] == ["docs/text"]
    assert (root / "docs" / "text").read_text() == "other"
    assert (root / "docs" / "deep" / "up").is_symlink()
    call("write_file", relative_path="new", content="made")
    assert (root / "docs" / "made").read_text() == "made"


def test_files_end_loops_of_links(root: Path, call: Call) -> None:
    """R34, R48: a loop of links is refused."""
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    for name in ("read_file", "write_file"):
        assert refused(call, name, relative_path="one", content="x").status == "denied"
        assert refused(call, name, relative_path="one/x", content="x").status == "denied"


@pytest.mark.parametrize(
    "path",
    [".git/config", "git~1/x", ".g\u200cit/x", ".GIT/config", "sub/.git/hooks/x", ".git", "g/hooks/x", "g/x"],
)
@pytest.mark.parametrize("name", ["write_file", "delete_file", "move_file"])
def test_files_do_not_change_git(root: Path, call: Call, name: str, path: str) -> None:
    """R35: `.git` isn't written, by its name or by a link to it."""
    for folder in (".git/hooks", "sub/.git/hooks"):
        (root / folder).mkdir(parents=True)
        (root / folder / "x").write_text("hook")
    (root / ".git" / "config").write_text("config")
    (root / ".git" / "x").write_text("x")
    (root / "g").symlink_to(".git")
    before = sorted(str(path) for path in root.rglob("*"))
    answer = refused(call, name, relative_path=path, content="x", new_relative_path="free")
    assert answer.status in ("denied", "not_found")
    assert sorted(str(path) for path in root.rglob("*")) == before
    assert call("read_file", relative_path=".git/config")["content"] == "config"


def test_files_do_not_move_into_git(root: Path, call: Call) -> None:
    """R35: neither is anything moved there."""
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / "g").symlink_to(".git/hooks")
    (root / "file").write_text("x")
    for target in (".git/hooks/pre-commit", "g/pre-commit", "g/new/pre-commit"):
        assert refused(call, "move_file", relative_path="file", new_relative_path=target).status == "denied"
    assert list((root / ".git" / "hooks").iterdir()) == []


@pytest.mark.parametrize("name", ["read_file", "write_file"])
def test_files_refuse_pipes_and_sockets_at_once(root: Path, call: Call, name: str) -> None:
    """R48: a FIFO, a socket or a device is refused by its type, without waiting for it."""
    os.mkfifo(root / "pipe")
    short = root.parent / "s"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(short))
    short.rename(root / "socket")
    for path in ("pipe", "socket"):
        assert refused(call, name, relative_path=path, content="x").status == "denied"
    listener.close()
    if os.geteuid() == 0:
        os.mknod(root / "null", 0o20666, os.makedev(1, 3))
        assert "device" in refused(call, name, relative_path="null", content="x").message


def test_files_read_shows_the_text_as_it_is(root: Path, call: Call) -> None:
    """R45: line ends, byte order mark and a missing last newline are shown, nothing is added."""
    data = "\ufeffone\r\ntwo\nthree\rlone\nlast".encode()
    (root / "file").write_bytes(data)
    assert call("read_file", relative_path="file") == {"content": data.decode(), "truncated": False}


def test_files_read_part_by_part(root: Path, call: Call) -> None:
    """S56: a part is shown, with where to read on."""
    (root / "file").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    part = call("read_file", relative_path="file", offset_lines=10, limit_lines=2)
    assert (
        part["content"]
        == "line 11\nline 12\n[lines 11-12 of 100 (792 bytes in all); read on with offset_lines=12]\n"
    )
    assert part["truncated"] is True
    assert (
        call("read_file", relative_path="file", offset_lines=98, limit_lines=9)["content"]
        == "line 99\nline 100\n"
    )
    assert "only 100 lines" in refused(call, "read_file", relative_path="file", offset_lines=100).message


def test_files_read_all_parts_join_to_the_file(root: Path, call: Call) -> None:
    """S56: reading on by the notes gives every line once."""
    lines = [f"{number:04} " + "x" * (number % 90) + "\n" for number in range(900)]
    (root / "file").write_text("".join(lines))
    seen: list[str] = []
    while True:
        part = str(
            call("read_file", relative_path="file", offset_lines=len(seen), max_shown_bytes=4096)["content"]
        )
        assert len(part.encode()) <= 4096
        shown = part.splitlines(keepends=True)
        if not shown[-1].startswith("[lines"):
            break
        seen += shown[:-1]
    assert seen + shown == lines


@pytest.mark.parametrize("shift", range(4))
def test_files_read_bounds_a_long_line(root: Path, call: Call, shift: int) -> None:
    """R42, R46: one endless line is cut at a character, and the next line can be reached."""
    (root / "file").write_text("x" * shift + "中😀" * 20_000 + "\nnext\n")
    first = str(call("read_file", relative_path="file")["content"])
    assert "\ufffd" not in first
    assert "too long" in first
    assert "offset_lines=1" in first
    assert call("read_file", relative_path="file", offset_lines=1)["content"] == "next\n"


def test_files_read_says_too_large(root: Path, call: Call) -> None:
    """S56: more than the workspace allows is refused whole, and readable in parts."""
    (root / "file").write_text("0123456789\n" * 100)
    assert refused(call, "read_file", relative_path="file", max_read_bytes=1000).status == "too_large"
    part = call("read_file", relative_path="file", max_read_bytes=1000, limit_lines=1)
    assert str(part["content"]).startswith("0123456789\n[lines 1-1 of 100")


def test_files_read_is_quick_on_a_sparse_giant(root: Path, call: Call) -> None:
    """R48: a sparse file of 1 TB costs nothing."""
    with (root / "giant").open("wb") as file:
        file.truncate(1 << 40)
    assert refused(call, "read_file", relative_path="giant").status == "too_large"
    assert "binary" in str(call("read_file", relative_path="giant", limit_lines=5)["content"])


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"\x7fELF\0\0", "binary file of 6 bytes"),
        (b"", "empty"),
        (b"caf\xe9\n", "caf\ufffd\n[not valid UTF-8"),
    ],
)
def test_files_read_says_what_it_can_not_show(root: Path, call: Call, data: bytes, part: str) -> None:
    """R41: binary, empty and foreign bytes are named."""
    (root / "file").write_bytes(data)
    assert part in str(call("read_file", relative_path="file")["content"])


def test_files_write_is_exact_and_keeps_the_mode(root: Path, call: Call) -> None:
    """R45, S56: the bytes are those given; mode kept; folders made; size bounded; nothing left over."""
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o750)
    content = "\ufeffa\r\nb\rc\n\0\u2028中"
    assert call("write_file", relative_path="run.sh", content=content)["changed"] == ["run.sh"]
    assert (root / "run.sh").read_bytes() == content.encode()
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o750
    call("write_file", relative_path="./new//deep/file", content="")
    assert (root / "new" / "deep" / "file").read_bytes() == b""
    answer = refused(call, "write_file", relative_path="big/x", content="中" * 4, max_write_bytes=11)
    assert answer.status == "too_large"
    assert refused(call, "write_file", relative_path="x", content="\ud800").status == "invalid_arguments"
    assert sorted(entry.name for entry in root.iterdir()) == ["new", "run.sh"]


def test_files_write_leaves_nothing_when_the_disk_is_full(
    root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R60: a write that can't be finished changes nothing."""
    (root / "file").write_text("old")

    def full(fd: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    answer = refused(call, "write_file", relative_path="file", content="new")
    assert (answer.status, "no space" in answer.message) == ("failed", True)
    assert (root / "file").read_text() == "old"
    assert [entry.name for entry in root.iterdir()] == ["file"]


def test_files_write_onto_a_folder_or_below_a_file(root: Path, call: Call) -> None:
    """R34: what isn't a file is refused."""
    (root / "folder").mkdir()
    (root / "file").write_text("x")
    (root / "dots").symlink_to("folder/..")
    for path in ("folder", "folder/", "dots"):
        assert refused(call, "write_file", relative_path=path, content="x").status == "invalid_arguments"
    assert refused(call, "write_file", relative_path="file/x", content="x").status == "not_found"
    assert refused(call, "read_file", relative_path="folder").status == "invalid_arguments"
    assert refused(call, "read_file", relative_path="missing").status == "not_found"


def test_files_move_never_overwrites(root: Path, call: Call) -> None:
    """R45: moving keeps the bytes, makes folders, and never lands on another file."""
    (root / "a").write_bytes(b"a\r\n")
    (root / "b").write_text("b")
    assert refused(call, "move_file", relative_path="a", new_relative_path="b").status == "conflict"
    result = call("move_file", relative_path="a", new_relative_path="new/c")
    assert result["changed"] == ["a", "new/c"]
    assert (root / "new" / "c").read_bytes() == b"a\r\n"
    assert not (root / "a").exists()
    assert refused(call, "move_file", relative_path="a", new_relative_path="x").status == "not_found"
    assert (
        refused(call, "move_file", relative_path="new", new_relative_path="x").status == "invalid_arguments"
    )


def test_files_move_without_renameat2(root: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """R34: where the C library has no such call the same holds."""
    from remit.workspaces.keeper import _renaming

    monkeypatch.setattr(_renaming, "_libc", object())
    test_files_move_never_overwrites(root, call)


def test_files_delete_takes_the_link_not_its_target(root: Path, call: Call) -> None:
    """R34: a link is deleted or moved itself."""
    (root / "target").write_text("x")
    (root / "link").symlink_to("target")
    (root / "out").symlink_to("/etc/passwd")
    call("move_file", relative_path="link", new_relative_path="moved")
    assert os.readlink(root / "moved") == "target"
    for path in ("moved", "out"):
        assert call("delete_file", relative_path=path)["changed"] == [path]
    assert [entry.name for entry in root.iterdir()] == ["target"]
    (root / "folder").mkdir()
    assert refused(call, "delete_file", relative_path="folder").status == "invalid_arguments"
    assert refused(call, "delete_file", relative_path="missing").status == "not_found"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"relative_path": 1},
        {"relative_path": "x", "offset_lines": -1},
        {"relative_path": "x", "offset_lines": True},
        {"relative_path": "x", "limit_lines": 0},
        {"relative_path": "x", "limit_lines": "5"},
    ],
)
def test_files_check_their_arguments(call: Call, arguments: dict[str, object]) -> None:
    """R31: an operation checks again what came over the link."""
    assert refused(call, "read_file", **arguments).status == "invalid_arguments"
