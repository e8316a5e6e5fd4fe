"""The same attacks and the same keeper for a user without privileges, where the kernel's rules are others."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from plain_user import missing_programs, run_as_plain_user

TESTS = Path(__file__).resolve().parents[1]
SUITES = {
    "attacks/test_sandbox_attacks.py": (),
    "integration/test_keeper_checkouts.py": (),
    # Without a sandbox of ours nothing depends on who one is, beside what the other suites show.
    "integration/test_keeper_commands.py": ("-k", "not none"),
    "integration/test_keeper_deaths.py": ("-m", "not slow"),
    "integration/test_toolchains_sandbox.py": (),
    "integration/test_sandbox_landlock.py": ("-k", "attempts"),
    "integration/test_sandbox_network.py": ("-k", "nothing_but or listed_host"),
}

# As a user these suites run by themselves, and there is nobody to become.
if os.geteuid() == 0:

    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("suite", SUITES)
    def test_suite_passes_as_a_plain_user(suite: str) -> None:
        """R2, R36: nothing gets out of the sandbox that a plain user starts, and all else works the same."""
        missing = missing_programs()
        if missing:
            pytest.skip(f"becoming another user needs {', '.join(missing)}")
        with tempfile.TemporaryDirectory(prefix="remit-user-", ignore_cleanup_errors=True) as folder:
            done = run_as_plain_user(
                ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{suite}", *SUITES[suite]],
                folder=Path(folder),
                cwd=TESTS.parent,
                timeout_s=500,
            )
        assert done.returncode == 0, done.stdout[-6_000:]
        assert " passed" in done.stdout
