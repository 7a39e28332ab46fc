"""Models of one's own that go wrong when they are built, and one that takes its time."""

import os
import signal
import time

from torch import nn


def dies(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def fails(*arguments, **options):
    print("a library that prints")
    raise ZeroDivisionError("a bug of one's own")


class _Unhurried(nn.Linear):
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)


def unhurried(input_shape, classes):
    return nn.Sequential(nn.Flatten(), _Unhurried(input_shape[0] * input_shape[1] * input_shape[2], classes))
