"""Checks the pages: links that lead somewhere, lengths, numbered decisions, the shape of the change log."""

import re
import sys
from pathlib import Path

from repository import ROOT, own_files, report

LENGTHS = {"README.md": 150, "AGENTS.md": 120}
DECISION_LINES = 80
DECISION_NAME = re.compile(r"(\d{4})-[a-z0-9-]+\.md")
DECISION_HEADINGS = ("## Status", "## Context", "## Decision", "## Consequences")
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
CHANGE_KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
RELEASE = re.compile(r"## (Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d{2}-\d{2}\))")


def main() -> int:
    """Check every page of the repository."""
    problems: list[str] = []
    for name in own_files():
        if name.suffix == ".md" and "data" not in name.parts:
            text = (ROOT / name).read_text()
            problems += link_problems(ROOT, name, text)
            problems += length_problems(name, text)
    problems += decision_problems(ROOT / "docs" / "adr")
    problems += change_log_problems((ROOT / "CHANGELOG.md").read_text())
    return report(problems)


def link_problems(root: Path, name: Path, text: str) -> list[str]:
    """Links to files or folders of this repository that aren't there."""
    found: list[str] = []
    for one, other in LINK.findall(_without_code(text)):
        target = (one or other).split("#")[0]
        elsewhere = not target or "://" in target or target.startswith("mailto:")
        if not elsewhere and not (root / name.parent / target).exists():
            found.append(f"{name}: the link to {target} leads nowhere")
    return found


def _without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def length_problems(name: Path, text: str) -> list[str]:
    """Pages that must stay short."""
    lines, most = text.count("\n"), LENGTHS.get(str(name))
    return [f"{name}: {lines} lines; the most is {most}"] if most is not None and lines > most else []


def decision_problems(folder: Path) -> list[str]:
    """Decisions are numbered without a gap, short, and all of one form."""
    found: list[str] = []
    pages = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    for number, path in enumerate(pages, start=1):
        match = DECISION_NAME.fullmatch(path.name)
        if match is None or int(match[1]) != number:
            found.append(f"{path.name}: expected a name like {number:04}-the-decision.md")
        text = path.read_text()
        if text.count("\n") > DECISION_LINES:
            found.append(f"{path.name}: a decision is one page, at most {DECISION_LINES} lines")
        found += [f"{path.name}: lacks `{heading}`" for heading in DECISION_HEADINGS if heading not in text]
        index = (folder / "README.md").read_text()
        if path.name not in index:
            found.append(f"{path.name}: not in docs/adr/README.md")
    return found


def change_log_problems(text: str) -> list[str]:
    """Releases, kinds below them, and entries of one sentence each."""
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"CHANGELOG.md:{number}"
        if line.startswith("## ") and RELEASE.fullmatch(line) is None:
            found.append(f"{where}: a release is `## Unreleased` or `## 1.2.3 (2026-01-31)`")
        elif line.startswith("### ") and line.removeprefix("### ") not in CHANGE_KINDS:
            found.append(f"{where}: a kind is one of {', '.join(sorted(CHANGE_KINDS))}")
        elif line.startswith("* ") and not re.fullmatch(r"\* [^.]+(\.\S[^.]*)*\.", line):
            found.append(f"{where}: an entry is one sentence on one line, with its full stop")
        elif line.startswith(("- ", "  ")):
            found.append(f"{where}: entries start with `* ` and stand on one line")
    return found


if __name__ == "__main__":
    sys.exit(main())
