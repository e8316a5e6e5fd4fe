"""Makes the virtual environment `.venv` and installs a hashed lock and this project into it.

Runs on any Python 3.11+ with the standard library alone: ``python3 tools/bootstrap.py run|dev``. A repeated
call with nothing changed ends at once: a stamp in `.venv` remembers what was installed.

Which registry serves the packages is the machine's own business (pip's and uv's configuration): no file
here names one.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
REQUIREMENTS = ROOT / "requirements"
# Each lock holds everything that the ones before it hold, at the same versions.
LOCKS = ("run", "dev")
FLOOR = (3, 11)


class BootstrapError(Exception):
    """What went wrong, as one sentence that says what to do."""


def main(arguments: "list[str]") -> int:
    """Bring `.venv` to the lock that is named on the command line.

    Returns:
        The exit code: 0, 1 when an installer failed, 2 for wrong use or a Python that is too old.
    """
    if sys.version_info < FLOOR:
        print("remit needs Python 3.11 or newer; this is " + sys.version.split()[0], file=sys.stderr)
        return 2
    if len(arguments) != 1 or arguments[0] not in LOCKS:
        print("usage: bootstrap.py " + "|".join(LOCKS), file=sys.stderr)
        return 2
    try:
        bring_up(arguments[0])
    except BootstrapError as error:
        print(f"bootstrap: {error}", file=sys.stderr)
        return 1
    return 0


def bring_up(lock: str) -> None:
    """Install `lock` unless it, or a lock that includes it, is already in place."""
    if _is_in_place(lock):
        return
    with (ROOT / ".venv.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # two targets may be started at once
        if not _is_in_place(lock):
            _install_lock(lock)


def _is_in_place(lock: str) -> bool:
    candidates = LOCKS[LOCKS.index(lock) :]
    return any(
        _stamp(name).is_file() and _stamp(name).read_text() == _fingerprint(name) for name in candidates
    )


def _install_lock(lock: str) -> None:
    _make_environment()
    for name in LOCKS:
        _stamp(name).unlink(missing_ok=True)
    _install_uv()
    print(f"bootstrap: installing requirements/{lock}.txt into .venv", file=sys.stderr)
    _install("--require-hashes", "-r", str(REQUIREMENTS / f"{lock}.txt"))
    _install("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    _stamp(lock).write_text(_fingerprint(lock))


def _stamp(lock: str) -> Path:
    return VENV / f"installed-{lock}.stamp"


def _fingerprint(lock: str) -> str:
    """Hash of all that the installed state hangs on; the folder too, since an environment can't be moved."""
    import tomllib  # noqa: PLC0415  an older Python must get as far as being told

    digest = hashlib.sha256(f"{ROOT}\n{sys.version_info[:2]}\n".encode())
    for path in (REQUIREMENTS / "uv.txt", REQUIREMENTS / f"{lock}.txt"):
        digest.update(path.read_bytes())
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    # The rest are settings of the checks: they change often, and nothing has to be installed for them.
    digest.update(repr((settings.get("project"), settings.get("build-system"))).encode())
    return digest.hexdigest()


def _python() -> Path:
    return VENV / "bin" / "python"


def _make_environment() -> None:
    """Make `.venv`, or make it anew where the one that is there is broken, moved or of another Python."""
    if _is_usable():
        return
    if VENV.exists():
        shutil.rmtree(VENV)
    # Without pip: some systems ship venv without ensurepip, and pip can install into another environment.
    _run([sys.executable, "-m", "venv", "--without-pip", str(VENV)], "can't make .venv")


def _is_usable() -> bool:
    if not _python().exists():
        return False
    probe = "import sys; print(sys.prefix, *sys.version_info[:2])"
    answer = subprocess.run([str(_python()), "-I", "-c", probe], capture_output=True, text=True, check=False)
    return answer.stdout.split() == [str(VENV), str(sys.version_info[0]), str(sys.version_info[1])]


def _install_uv() -> None:
    """Install uv by pip, with its hash, unless this very version is there."""
    wanted = (REQUIREMENTS / "uv.txt").read_text()
    mark = VENV / "installed-uv.stamp"
    if mark.is_file() and mark.read_text() == wanted and (VENV / "bin" / "uv").exists():
        return
    wish = ["--require-hashes", "-r", str(REQUIREMENTS / "uv.txt")]
    _run([*_pip(), *wish], "pip can't install uv")
    mark.write_text(wanted)


def _pip() -> "list[str]":
    """The start of a command line by which pip installs into `.venv`."""
    options = ["--python", str(_python()), "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    if not _has_cache():
        options.append("--no-cache-dir")
    for python in (_python(), Path(sys.executable)):
        known = subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True, check=False)
        if known.returncode == 0:
            return [str(python), "-m", "pip", *options]
    ensured = subprocess.run([str(_python()), "-m", "ensurepip"], capture_output=True, check=False)
    if ensured.returncode == 0:
        return [str(_python()), "-m", "pip", *options]
    raise BootstrapError("this Python has no pip: install it (on Debian: apt-get install python3-pip)")


def _install(*arguments: str) -> None:
    """Install by uv, or by pip (same hashes) where only pip is set up for this machine's registry."""
    uv = [str(VENV / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(_python())]
    # The machine's own certificates: many machines reach their registry through an authority of their own.
    uv += ["--system-certs"] if _has_cache() else ["--system-certs", "--no-cache"]
    if subprocess.run([*uv, *arguments], check=False).returncode == 0:
        return
    print("bootstrap: uv couldn't; trying pip", file=sys.stderr)
    _run([*_pip(), *arguments], "neither uv nor pip could install what is needed")


def _has_cache() -> bool:
    """Whether this user has a cache that can be written: not with an unset, missing or foreign home."""
    if "UV_CACHE_DIR" in os.environ or "XDG_CACHE_HOME" in os.environ:
        return True
    home = os.environ.get("HOME")
    return bool(home) and os.access(home, os.W_OK)


def _run(command: "list[str]", failure: str) -> None:
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise BootstrapError(f"{failure}: `{' '.join(command)}` ended with {code}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
