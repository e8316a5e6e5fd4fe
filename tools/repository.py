"""What the build checks share: where the repository is and which files belong to it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def own_files(root: Path = ROOT) -> list[Path]:
    """Every file that is, or would be, committed, relative to `root` and sorted.

    Outside a git checkout (an unpacked source archive) every file counts that no dot-folder hides.
    """
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, capture_output=True, check=False)
    if answer.returncode == 0:
        names = {Path(name.decode()) for name in answer.stdout.split(b"\0") if name}
    else:
        names = {path.relative_to(root) for path in root.rglob("*") if path.is_file()}
        names = {name for name in names if not any(part.startswith(".") for part in name.parent.parts)}
    return sorted(name for name in names if (root / name).is_file())


def read_text(path: Path) -> str | None:
    """The file's text, or None where it isn't UTF-8 text."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def report(problems: list[str], warnings: list[str] | None = None) -> int:
    """Print what was found, warnings first, and return the exit code: 1 when there is a problem."""
    for warning in warnings or []:
        print(f"warning: {warning}")
    for problem in problems:
        print(f"error: {problem}")
    return 1 if problems else 0
