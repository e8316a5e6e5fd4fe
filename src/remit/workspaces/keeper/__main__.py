"""Entry of the zygote: `python -m remit.workspaces.keeper CONTROL_FD NODE_PID`."""

from __future__ import annotations

import signal
import socket
import sys

from remit.workspaces.keeper._operations import OPERATIONS
from remit.workspaces.keeper._zygote import Zygote, hello


def main(arguments: list[str]) -> None:
    """Serves on the inherited control socket until the node is gone."""
    descriptor, node = map(int, arguments)
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    # No terminal reaches our own session. The default, since commands would inherit that it is ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    hello(control)
    Zygote(control, OPERATIONS).run(node)


if __name__ == "__main__":
    main(sys.argv[1:])
