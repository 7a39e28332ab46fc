"""A fixture that makes run folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_factory import make_folder


@pytest.fixture
def run_folder(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "quickstart", *arguments: Any, **options: Any) -> Path:
        return make_folder(tmp_path / name, *arguments, **options)

    return make
