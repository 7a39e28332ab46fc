"""Models of one's own that go wrong when they are built."""

import os
import signal


def dies(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def fails(*arguments, **options):
    print("a library that prints")
    raise ZeroDivisionError("a bug of one's own")
