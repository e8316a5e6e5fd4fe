"""The node's own work for a user without privileges: other overlays, other owners, no capability."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from plain_user import missing_programs, run_as_plain_user

TESTS = Path(__file__).resolve().parents[1]
SUITES = (
    "test_service_requests.py",
    "test_checkout_asleep.py",
    "test_service_continues.py",
    "test_patch_from_overlay.py",
    "test_delivery_apply.py",
)

# As a user these suites run by themselves, and there is nobody to become.
if os.geteuid() == 0:

    @pytest.mark.slow
    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("suite", SUITES)
    def test_suite_passes_as_a_plain_user(suite: str) -> None:
        """R2, R60: bases, patches, deliveries and the node protocol work the same for a plain user."""
        missing = missing_programs()
        if missing:
            pytest.skip(f"becoming another user needs {', '.join(missing)}")
        with tempfile.TemporaryDirectory(prefix="remit-user-", ignore_cleanup_errors=True) as folder:
            done = run_as_plain_user(
                ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/integration/{suite}"],
                folder=Path(folder),
                cwd=TESTS.parent,
                timeout_s=500,
            )
        assert done.returncode == 0, done.stdout[-6_000:]
        assert " passed" in done.stdout
