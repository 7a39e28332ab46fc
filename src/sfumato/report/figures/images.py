"""Images inside of the page, as PNG in the HTML; written without an image library."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt

from sfumato.report import formatting as text


def image_element(image: npt.NDArray[np.floating], description: str) -> str:
    """An ``img`` element.

    Args:
        image: ``[C, H, W]``, 1 or 3 channels from 0 to 1; other values are clipped.
        description: plain text.
    """
    data = base64.b64encode(png(image)).decode("ascii")
    return f'<img alt="{text.escape(description)}" src="data:image/png;base64,{data}">'


def png(image: npt.NDArray[np.floating]) -> bytes:
    """A PNG file of an image; see `picture`."""
    channels, height, width = image.shape
    pixels = np.nan_to_num(np.clip(image, 0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)
    # every line begins with its filter: none
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    colour = {1: 0, 3: 2}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
