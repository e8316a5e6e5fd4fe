"""Runs a command and fails when it leaves a process behind: ``python3 tools/leftovers.py -- make test``.

On Linux it makes itself the reaper of everything below it, so that an orphaned daemon is found too.
Only such descendants are looked at and ended; nothing else on the machine is touched.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 3.0


def main(arguments: list[str]) -> int:
    """Run the command after `--`; its exit code, or 1 when it was 0 and something is left."""
    if not arguments or arguments[0] != "--" or not arguments[1:]:
        print("usage: leftovers.py -- COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    if sys.platform != "linux":
        return subprocess.run(arguments[1:], check=False).returncode
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = _run(arguments[1:])
    left = _wait_until_gone()
    for pid, words in left.items():
        print(f"left running: {pid} {words}", file=sys.stderr)
        os.kill(pid, signal.SIGKILL)
    return code or (1 if left else 0)


def _run(command: list[str]) -> int:
    """Start the command and wait for it, reaping whatever else ends meanwhile."""
    child = os.posix_spawnp(command[0], command, os.environ)
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _wait_until_gone() -> dict[int, str]:
    """Living descendants after a short grace: what was just told to end may still be on its way out."""
    until = time.monotonic() + GRACE_S
    while True:
        _reap()
        left = _descendants(os.getpid())
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _descendants(root: int) -> dict[int, str]:
    """Pid and command line of every living process below `root`."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found: dict[int, str] = {}
    for pid in parents:
        above = pid
        while above in parents and above != root:
            above = parents[above]
        if above == root and pid != root:
            found[pid] = _command_line(pid)
    return found


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "(gone)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
