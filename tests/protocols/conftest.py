from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The spec of the test's module, in a file."""
    path = tmp_path / "controlled.yaml"
    path.write_text(request.module.SPEC)
    return path
