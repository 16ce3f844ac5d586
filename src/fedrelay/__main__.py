"""`python -m fedrelay` is the command `fedrelay`."""

import sys

from fedrelay.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
