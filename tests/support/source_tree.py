"""The modules of the package as texts and syntax trees, parsed once for all tests that look through them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import sfumato

SOURCE = Path(sfumato.__file__).parent


@cache
def modules() -> tuple[tuple[str, ast.Module, str], ...]:
    """Name, syntax tree and text of every module."""
    texts = {path: path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    return tuple((path.relative_to(SOURCE).as_posix(), ast.parse(text), text) for path, text in texts.items())


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a syntax tree, listed once: to walk through all modules takes a second."""
    return tuple(ast.walk(tree))
