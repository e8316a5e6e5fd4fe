"""The command line: `remit run`, and all that goes with it.

Only the entry is loaded with the package, so that `remit --help` answers at once; a command's own
module, and the host with it, is loaded when that command is typed.
"""

import sys

try:
    from remit.cli._program import main, program
except KeyboardInterrupt:  # Ctrl-C came while the program was being loaded
    sys.exit(130)

__all__ = ["main", "program"]
