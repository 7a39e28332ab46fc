"""``python -m sfumato`` is ``sfumato``."""

import sys

from sfumato.cli import main

if __name__ == "__main__":
    sys.exit(main())
