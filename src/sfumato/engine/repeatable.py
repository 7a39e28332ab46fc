"""Arithmetic of a GPU that gives the same bytes every time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_FILLING: Any = torch.utils.deterministic  # a module whose attributes are made when it is imported


@contextmanager
def repeatable_arithmetic(device: str) -> Iterator[None]:
    """Compute on a GPU in full float32 and in a fixed order until the block ends; a CPU needs no settings.

    Products and convolutions use no TF32, which keeps 10 bits of 24. cuDNN compares no algorithms by their
    time, and torch takes deterministic ones; where it has none it warns and names the operation. It does not
    fill new memory first, which makes programs repeatable that read such memory, and slower. These are
    settings of the whole process. The workspace of cuBLAS, which must be fixed for that, is read once, when
    the process first multiplies matrices on a GPU; a size that the environment states already is kept.

    Args:
        device: ``"cpu"`` or ``"cuda"``, perhaps with an index.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    os.environ.setdefault(_WORKSPACE, ":4096:8")
    precision = torch.get_float32_matmul_precision()
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    fills = _FILLING.fill_uninitialized_memory
    try:
        torch.set_float32_matmul_precision("highest")
        torch.use_deterministic_algorithms(True, warn_only=True)
        _FILLING.fill_uninitialized_memory = False
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        _FILLING.fill_uninitialized_memory = fills
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.set_float32_matmul_precision(precision)
