"""Writes `docs/reference/` from the code.

`--check` (the default) fails when a page differs from what the code says; `--write` writes them anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import reference_commands
import reference_run
import reference_settings
from repository import ROOT, report

FOLDER = ROOT / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "errors.md": reference_run.errors_page,
    "events.md": reference_run.events_page,
    "limits.md": reference_run.limits_page,
    "node-messages.md": reference_run.node_page,
    "request.md": reference_run.request_page,
    "run.md": reference_run.run_page,
    "settings.md": reference_settings.settings_page,
}
if reference_commands.is_written():
    PAGES["commands.md"] = reference_commands.commands_page
HEAD = "<!-- Generated from the code by `make docs ARGS=--write`. Don't edit. -->\n\n"


def main(arguments: list[str]) -> int:
    """Check the pages, or with `--write` write them."""
    pages = {FOLDER / name: HEAD + build() for name, build in PAGES.items()}
    pages[FOLDER / "README.md"] = HEAD + _index(pages)
    if "--write" in arguments:
        for path, text in pages.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_text() != text]
    strays = sorted(set(FOLDER.glob("*.md")) - set(pages))
    return report(
        [f"{path.relative_to(ROOT)} is stale: run `make docs ARGS=--write`" for path in stale]
        + [f"{path.relative_to(ROOT)}: no page of the generator" for path in strays]
    )


def _index(pages: dict[Path, str]) -> str:
    lines = ["# Reference\n\nWhat there is, as the code says it.\n"]
    for path, text in sorted(pages.items()):
        title = next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
        lines.append(f"* [{title}]({path.name})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
