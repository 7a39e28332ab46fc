"""``python -m sfumato.verify RUN``, and what the archive of the checker runs."""

import sys

from sfumato.verify.checker import main

raise SystemExit(main(sys.argv[1:]))
