"""Two runs that are the first at once: what both need is made once, and for both."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remit.workspaces import _etc, _pinning


def test_both_share_one_etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is second, in the same process too, takes what the first has made; nothing is left over."""
    together = threading.Barrier(2)

    def copy_nothing(source: Path, target: Path) -> None:
        together.wait(timeout=30)

    monkeypatch.setattr(_etc, "_copy_part", copy_nothing)
    monkeypatch.setattr(_etc, "system_files", lambda: ["/etc/services"])
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(_etc.etc_folder, tmp_path, home=Path("/home/x")) for _ in range(2)]
        folders = {one.result(timeout=30) for one in made}
    assert list((tmp_path / "sandbox").iterdir()) == list(folders)


def test_both_pin_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without git, pinned by two threads: neither takes away what the other has written."""
    root, together, write = tmp_path / "app", threading.Barrier(2), Path.write_text
    root.mkdir()
    write(root / "a.txt", "a\n")

    def write_together(path: Path, text: str) -> int:
        written = write(path, text)
        together.wait(timeout=30)
        return written

    monkeypatch.setattr(Path, "write_text", write_together)
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(_pinning._pin_folder, root, tmp_path / "data", False) for _ in range(2)]
        (store,) = {one.result(timeout=60).store for one in made}
    assert [path.name for path in Path(store or "").iterdir()] == ["facts.json"]
