"""What every run store does: one suite for all adapters of `remit.runs.RunStore`.

To use it, derive a test class and give it a `harness` fixture (a `StoreHarness`, fresh for each test):

    class TestMyStore(StoreSuite):
        @pytest.fixture
        async def harness(self): ...

It needs pytest and pytest-asyncio in mode `auto`.
"""

from __future__ import annotations

from remit.testing._store_suite_admission import AdmissionRules
from remit.testing._store_suite_audit import AuditRules
from remit.testing._store_suite_harness import StoreHarness
from remit.testing._store_suite_log import LogRules
from remit.testing._store_suite_reading import ReadingRules
from remit.testing._store_suite_tombstones import TombstoneRules
from remit.testing._store_suite_waiting import WaitingRules

__all__ = ["StoreHarness", "StoreSuite"]


class StoreSuite(AdmissionRules, TombstoneRules, LogRules, ReadingRules, WaitingRules, AuditRules):
    """The rules of admission, claims, dead ids, the log, reading, waiting, cancelling and the audit."""
