"""Rules of the source tree: short files and functions, no retired names, packages that list their modules."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from source_tree import SOURCE, modules, nodes

pytestmark = pytest.mark.quick  # the first of them reads all files

MAX_FILE, MAX_FUNCTION = 400, 60

PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)

LONG_FILES: dict[str, str] = {}
"""Files of more than ``MAX_FILE`` lines, and why."""

LONG_FUNCTIONS: dict[str, str] = {}
"""Functions of more than ``MAX_FUNCTION`` lines, docstring included, decorators not, and why."""

RETIRED = set(
    """
    Ledger StepFacts Chance DrawnRelease SeenDraw PoissonDraw FixedSizeDraw Charge Term Era TieredLedger
    GroupedLedger judge judge_each required_scale leaf_orbits outweighed always_sent tells_draw
    certified Kinds RoundFacts Floats Integers Level Together Standpoint keepsakes realised Seats _armed
    _learn need_tensors Exact Setting Held Energy Secants TieredPlan GroupedPlan Examination Sending
    noisers loudest_noise Realised silent_from Survival Watched is_held units_beside explained Wires
    Ring Participants Turnout Speed Slot Place Look looks_at Puzzle Strangers Box Found Solved Public
    _Judge Measured Split Scene Stage GroupedStage TieredStage stage_of mates THE_UNIT Heard Hearing
    TreeEars GroupEars one_crowded_run widened other_world HiddenFamily Reaction Wanted Demand
    spells_out_who top_ups is_bare Asked Crew _bury _death blaming counted Shown ShownTree ShownGroups
    Naming Pictures Materials Standing restated held_checkpoint observers_held refuse_held ways_on
    """.split()  # noqa: SIM905
)
"""Names that NAMES.md retires: no class, function or field is called so."""


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every function with its number of lines, docstring included."""
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def names(tree: ast.Module) -> set[str]:
    """Names of the classes, functions, methods, and annotated fields and variables that a module defines."""
    found = set()
    for node in nodes(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) if name[0].isupper():
                found.add(name)  # a type alias, or a constant
    return found


def package_docstrings() -> dict[str, tuple[str, set[str]]]:
    """The docstring of every package but the root, and the modules and packages in it."""
    found = {}
    for path in sorted(SOURCE.rglob("__init__.py")):
        folder = path.parent
        if folder == SOURCE:
            continue
        inside = {child.stem for child in folder.glob("*.py")} - {"__init__"}
        inside |= {child.parent.name for child in folder.glob("*/__init__.py")}
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        found[folder.relative_to(SOURCE).as_posix()] = docstring, inside
    return found


def test_files_have_at_most_400_lines() -> None:
    long = {name for name, _, text in modules() if len(text.splitlines()) > MAX_FILE}
    assert long == set(LONG_FILES)


def test_functions_have_at_most_60_lines() -> None:
    long = {
        f"{name}: {what}"
        for name, tree, _ in modules()
        for what, lines in functions(tree)
        if lines > MAX_FUNCTION
    }
    assert long == set(LONG_FUNCTIONS)


def rounded_epsilons(tree: ast.AST) -> Iterator[str]:
    """Every ``f"{epsilon:.3g}"`` and the like, in which a name says epsilon and a precision rounds it."""
    for node in nodes(tree):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            rounds = re.search(r"\.\d*[efg%]?'", ast.unparse(node.format_spec))
            if rounds and re.search("epsilon|guaranteed", ast.unparse(node.value), re.IGNORECASE):
                yield ast.unparse(node)


def test_no_epsilon_is_rounded_to_the_nearest() -> None:
    """A guaranteed ε is an upper bound: `sfumato.rounding.upper_bound` writes it, in examples too."""
    root = Path(__file__).parents[1]
    scripts = [
        path for folder in ("examples", "docs", "benchmarks") for path in (root / folder).rglob("*.py")
    ]
    trees = {path.name: ast.parse(path.read_text("utf-8")) for path in scripts}
    trees |= {name: tree for name, tree, _ in modules()}
    assert {name: list(found) for name, tree in trees.items() if (found := [*rounded_epsilons(tree)])} == {}


def test_no_page_rounds_an_epsilon_to_the_nearest() -> None:
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    blocks = [(page.name, block) for page in pages for block in PYTHON.findall(page.read_text("utf-8"))]
    assert blocks
    assert [name for name, block in blocks if "epsilon" in block and re.search(r"\bround\(", block)] == []
    assert {name: found for name, block in blocks if (found := [*rounded_epsilons(ast.parse(block))])} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('f"{epsilon:.3g}"', True),
        ('f"{row.epsilon:.2f}"', True),
        ('f"{table[EPSILON]:.4}"', True),
        ('f"{epsilon:g} {upper_bound(x)} {delta:.2g}"', False),
    ],
)
def test_the_search_finds_rounded_epsilons(text: str, found: bool) -> None:
    assert bool([*rounded_epsilons(ast.parse(text))]) == found


def test_retired_names_are_gone() -> None:
    found = {word: name for name, tree, _ in modules() for word in names(tree) & RETIRED}
    assert found == {}


TWICE: dict[str, str] = {
    "account": "the function, and the command of the same name",
    "attack": "the function, and the command of the same name",
    "audit": "the function, and the command of the same name",
    "compare": "the function, and the command of the same name",
    "load_run": "a run for users of Python, and the folder that it is read from",
    "plan": "the function, and the command of the same name",
    "run": "the function, and the command of the same name",
    "statement": "the function, and the command of the same name",
    "sweep": "the function, and the command of the same name",
    "main": "where a process starts",
    "run_round": "one round of each grouped protocol",
    "start": "of each tracker of runs",
}
"""Public names that several modules define, and why."""


def defined_in_several(trees: Iterable[tuple[str, ast.Module]]) -> dict[str, list[str]]:
    """Public classes and functions at the top of more than one module, with these modules."""
    places: dict[str, set[str]] = {}
    for module, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(module)
    return {name: sorted(found) for name, found in places.items() if len(found) > 1}


def test_a_public_name_is_defined_in_one_module() -> None:
    found = defined_in_several((name, tree) for name, tree, _ in modules())
    assert {name: where for name, where in found.items() if name not in TWICE} == {}
    assert TWICE.keys() <= found.keys()


def test_the_search_finds_names_that_are_defined_twice() -> None:
    pair = [(name, ast.parse(f"class Kind: pass\ndef {name}(): pass\ndef _x(): pass")) for name in "ab"]
    assert defined_in_several(pair) == {"Kind": ["a", "b"]}


@pytest.mark.parametrize(
    "text",
    [
        "class Wanted: pass",
        "def counted(): pass",
        "class A:\n    def mates(self): pass",
        "class A:\n    Heard: int",
        "self.mates: int = 1",
        "Heard = dict[str, int]",
    ],
)
def test_the_search_finds_definitions(text: str) -> None:
    assert names(ast.parse(text)) & RETIRED


def test_packages_list_their_modules() -> None:
    bare = {
        package
        for package, (docstring, inside) in package_docstrings().items()
        if not all(re.search(rf"\b{name}\b", docstring) for name in inside)
    }
    assert bare == set()
