"""What is done at the start with the checkouts of runs whose host died."""

from __future__ import annotations

from remit.config import Config
from remit.host._parts import Parts
from remit.runs import Salvage, Salvaged, StoredRun, salvage_checkout


def salvage_for(config: Config, parts: Parts) -> Salvage:
    """Reads what such a run had done, on its own node; its checkout is kept unless somebody said never."""

    async def salvage(stored: StoredRun) -> Salvaged:
        workspace = stored.view.workspace
        if workspace is None:
            return Salvaged()
        binding = config.bindings.get(stored.view.binding)
        preserve = stored.request.preserve or (binding.preserve if binding is not None else "failed")
        link = parts.nodes.find_link(workspace.ref) or parts.link
        return await salvage_checkout(link, stored, keep=preserve != "never")

    return salvage
