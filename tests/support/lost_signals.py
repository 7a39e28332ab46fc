"""A signal whose exception is lost: Python prints what a destructor raises, and goes on."""

import os


class _SignalsWhenDeleted:
    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)
        for _ in range(10):  # the handler runs between these instructions
            pass


def send_lost(number: int) -> None:
    """Send this process a signal while an object is deleted."""
    _SignalsWhenDeleted(number)
