"""A worker on another machine, as one of its masters asks it: again, until all of its masters have asked."""

from __future__ import annotations

import time
from collections.abc import Callable

from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.frame_exchange import ANSWER_S
from sfumato.errors import RunError

_PAUSE_S = 0.5  # a worker keeps a question for a while before it answers without a frame (`several_parents`)


class AskedAgain:
    """A worker that gets the same question again as long as it answers without a frame; see `FrameReceiver`.

    It does so until all of its masters have asked about the round (`worker`).

    Args:
        worker: as its master reaches it.
        name: of the worker, for sentences.
        say: called with a sentence when the worker waits for others.
    """

    def __init__(self, worker: FrameReceiver, name: str, say: Callable[[str], object]) -> None:
        self._worker, self._name, self._say = worker, name, say

    def receive(self, data: bytes) -> list[bytes]:
        """Send the question ``data`` again and again until it is answered, for at most an hour.

        Returns:
            The frames of the answer.

        Raises:
            RunError: the worker refuses, is gone, or not all of its masters have asked within an hour.
        """
        deadline, is_said = time.monotonic() + ANSWER_S, False
        while not (frames := self._worker.receive(data)):
            if time.monotonic() >= deadline:
                raise RunError(f"{self._name}: has not been asked by all of its masters within an hour")
            if not is_said:
                self._say(f"{self._name} waits until all of its masters have asked")
                is_said = True
            time.sleep(_PAUSE_S)
        return frames
