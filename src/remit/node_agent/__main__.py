"""The program of a node's own process."""

from __future__ import annotations

import sys

from remit.node_agent._served import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
