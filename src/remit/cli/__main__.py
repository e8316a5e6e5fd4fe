"""`python -m remit.cli`, for where no `remit` is on PATH."""

import sys

from remit.cli import main

if __name__ == "__main__":
    sys.exit(main())
