"""A model whose training ends on rank 1, named by specs of tests.

``SFUMATO_TEST_ENDS`` says how: ``raise``, or the number of a signal that it sends itself; with ``lost`` it
sends SIGINT in a destructor, which loses the exception.
"""

import math
import os
import signal

from lost_signals import send_lost
from torch import Tensor, nn

CALLS = 40
"""Forward passes of rank 1 before its end: it is in the midst of a run then."""


class EndsOnRankOne(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, classes)
        self.how = os.environ.get("SFUMATO_TEST_ENDS", "") if os.environ.get("RANK") == "1" else ""

    def forward(self, x: Tensor) -> Tensor:
        global CALLS
        CALLS -= 1
        if self.how and CALLS <= 0:
            if self.how == "raise":
                raise ValueError("this model fails on rank 1")
            if self.how == "lost":
                send_lost(signal.SIGINT)
            else:
                os.kill(os.getpid(), int(self.how))
        found: Tensor = self.layer(x.flatten(1))
        return found


def ends(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return EndsOnRankOne(math.prod(input_shape), classes)
