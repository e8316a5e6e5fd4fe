"""The host: one of the two places where adapters are chosen. It admits runs, drives and settles them.

    async with remit.Host(config) as host:
        run = await host.start(RunRequest(prompt="make the failing test pass"))
        async for event in run.events():
            print(event.type)
        print((await run.wait()).output)

Opening a host starts an epoch, rolls half-done deliveries forward or back, and ends what dead epochs left
behind. Closing it takes no more work, stops what still runs (`cancelled`, code `drain`), and closes
everything in reverse.
"""

from remit.host._by_hand import ByHand, PatchPlace, branches_of, deliver_by_hand
from remit.host._configured import keep_audit_short, record_settings, settings_act
from remit.host._delivering import check_discardable
from remit.host._host import Host
from remit.host._run import CancelOutcome, Run
from remit.host._states import HOST_TRANSITIONS, HostStatus, HostTrigger, next_host_status
from remit.host._watching import OnEvent

__all__ = [
    "HOST_TRANSITIONS",
    "ByHand",
    "CancelOutcome",
    "Host",
    "HostStatus",
    "HostTrigger",
    "OnEvent",
    "PatchPlace",
    "Run",
    "branches_of",
    "check_discardable",
    "deliver_by_hand",
    "keep_audit_short",
    "next_host_status",
    "record_settings",
    "settings_act",
]
