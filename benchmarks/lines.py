"""What the lines of the package are for, by package, as the table of docs/architecture.md.

    python benchmarks/lines.py

Every line counts once, for the first of these that it belongs to: a docstring (also of an attribute) or a
comment that stands alone; blank; an import; a refusal (a ``raise``, a row of a table of refusals, a call of
``refuse``) or text for people (a string of three words or more); the signature of a function or class, with
its decorators; the rest, which computes.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "sfumato"
KINDS = ("blank", "docstrings, comments", "imports", "refusals, messages", "signatures", "the rest")
BLANK, TEXT, IMPORTS, MESSAGES, SIGNATURES, REST = KINDS
REFUSING = {"refuse", "Refusal", "Refused"}
MODULES = "single modules"


def kinds_of(source: str) -> list[str]:
    """The kind of every line of a module."""
    lines = source.splitlines()
    tree = ast.parse(source)
    found = [REST if line.strip() else BLANK for line in lines]

    def mark(first: int, last: int, kind: str) -> None:
        for number in range(first - 1, last):
            if found[number] != BLANK or kind == TEXT:
                found[number] = kind

    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            mark(first, max(first, node.body[0].lineno - 1), SIGNATURES)
    for node in nodes:
        if isinstance(node, ast.JoinedStr | ast.Constant) and _is_for_people(node):
            mark(node.lineno, node.end_lineno or node.lineno, MESSAGES)
    for node in nodes:
        refuses = isinstance(node, ast.Raise) or (
            isinstance(node, ast.Call) and getattr(node.func, "id", None) in REFUSING
        )
        if refuses:
            mark(node.lineno, node.end_lineno, MESSAGES)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            mark(node.lineno, node.end_lineno or node.lineno, IMPORTS)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and _is_text(node.value):
            mark(node.lineno, node.end_lineno or node.lineno, TEXT)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line.strip().startswith("#"):
            mark(token.start[0], token.start[0], TEXT)
    return found


def _is_text(node: ast.Constant) -> bool:
    return isinstance(node.value, str)


def _is_for_people(node: ast.JoinedStr | ast.Constant) -> bool:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    words = [part.value for part in parts if isinstance(part, ast.Constant) and _is_text(part)]
    return len(" ".join(words).split()) >= 3


def main() -> None:
    """Print one row for each package, most lines first, and the shares of each kind in all."""
    packages: dict[str, Counter[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        below = path.relative_to(SOURCE).parts
        package = below[0] if len(below) > 1 else MODULES
        packages.setdefault(package, Counter()).update(kinds_of(path.read_text(encoding="utf-8")))
    print(f"| package | lines | {TEXT} | {BLANK}, {IMPORTS}, {SIGNATURES} | {MESSAGES} | {REST} |")
    print("|---|" + "--:|" * 5)
    for package, counts in sorted(packages.items(), key=lambda row: -row[1].total()):
        groups = (TEXT,), (BLANK, IMPORTS, SIGNATURES), (MESSAGES,), (REST,)
        shares = [sum(counts[kind] for kind in kinds) / counts.total() for kinds in groups]
        print(f"| `{package}` | {counts.total():,} | {' | '.join(f'{share:.0%}' for share in shares)} |")
    counts = sum(packages.values(), Counter())
    print(f"{counts.total():,} lines: " + ", ".join(f"{kind} {counts[kind]:,}" for kind in KINDS))


if __name__ == "__main__":
    main()
