"""A model that cannot be trained for many devices at once: an LSTM over the rows of an image.

In a spec::

    model: {kind: "row_lstm:make"}

Nothing else is needed. The run notes that devices are trained one after another, and why; updates, clipping,
noise, checkpoints and recorded views are as with any other model.
"""

from __future__ import annotations

from torch import Tensor, nn


class RowLSTM(nn.Module):
    """Reads an image row by row, and classifies by the last hidden state."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, _, width = input_shape
        self.rows = nn.LSTM(channels * width, 32, batch_first=True)
        self.head = nn.Linear(32, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits ``[B, classes]`` of images ``[B, C, H, W]``."""
        hidden, _ = self.rows(images.transpose(1, 2).flatten(2))
        return self.head(hidden[:, -1])


def make(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The model for examples of this shape."""
    return RowLSTM(input_shape, classes)
