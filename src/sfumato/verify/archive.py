"""The checker as one file that runs without Sfumato: ``python checker.pyz RUN``."""

from __future__ import annotations

import shutil
import tempfile
import zipapp
from pathlib import Path


def write_zip_application(target: Path) -> None:
    """Write the package `sfumato.verify` as one executable .pyz file to ``target``, which is overwritten.

    It runs as ``python TARGET RUN`` where NumPy, SciPy, PyYAML and dp_accounting are installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "sfumato" / "verify"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").touch()
        for module in sorted(Path(__file__).parent.glob("*.py")):
            shutil.copy(module, package)
        shutil.copy(package / "__main__.py", folder)
        zipapp.create_archive(folder, target, interpreter="/usr/bin/env python3", compressed=True)
