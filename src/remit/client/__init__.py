"""How a host is called from a program: over HTTP, typed, sync and async.

    async with remit.AsyncClient("http://127.0.0.1:7433", api_key=KEY) as client:
        run = await client.create(prompt="make the failing test pass")
        async for event in client.events(run.id):
            print(event.type)
        print((await client.wait(run.id)).output)

`Client` has the same calls without `await`. Only what is safe is sent again: reads, cancels, and starts,
which always carry an idempotency key. A stream that breaks is resumed by the number of its last event.
"""

from remit.client._async import AsyncClient
from remit.client._reading import CancelAnswer
from remit.client._sync import Client

__all__ = ["AsyncClient", "CancelAnswer", "Client"]
