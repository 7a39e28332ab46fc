"""The pages of docs/: all are in the navigation; files, tests and names that they quote exist."""

from __future__ import annotations

import ast
import inspect
import math
import re
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
import yaml
from places import ROOT
from scipy.stats import norm

from sfumato.privacy.losses import gaussian
from sfumato.rounding import certainty, upper_bound
from sfumato.spec.document import Protocol
from sfumato.spec.model import LOSSES
from sfumato.spec.privacy import OBSERVER_KINDS

DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "sfumato"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))
TEXTS = [*PAGES, "README.md", "CONTRIBUTING.md"]
MOST_WORDS = 12_000
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)  # of mkdocs; nobody reads it
QUOTED = re.compile(r"`([^`\n]+)`")


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def quoted(page: str, pattern: str) -> set[str]:
    """What the page quotes in backticks and matches ``pattern``."""
    return {text for text in QUOTED.findall(text_of(page)) if re.fullmatch(pattern, text)}


def in_navigation(entries: list[object]) -> list[str]:
    found: list[str] = []
    for entry in entries:
        target = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += in_navigation(target) if isinstance(target, list) else [str(target)]
    return found


def test_every_page_is_in_the_navigation_once():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert sorted(f"docs/{page}" for page in in_navigation(site["nav"])) == PAGES


def section(name: str) -> list[str]:
    """The pages of a section of the navigation."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    (entries,) = [entry[name] for entry in site["nav"] if name in entry]
    return entries if isinstance(entries, list) else [entries]


def test_the_guide_is_short():
    """What a user reads to use the tool; whatever else is known stands in the reference and the appendix."""
    guide = in_navigation([*section("Home"), *section("Guide")])
    words = {page: len(FRONT_MATTER.sub("", text_of(f"docs/{page}")).split()) for page in guide}
    assert len(words) > 15
    assert sum(words.values()) <= MOST_WORDS, words


def test_the_readme_is_short():
    assert len(text_of("README.md").split()) <= 650


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("what is delta", "epsilon.md"),
        ("epsilon meaning", "epsilon.md"),
        ("epsilon 8 good", "epsilon.md"),
        ("callback", "running.md"),
        ("early stopping", "running.md"),
        ("load model predict", "running.md"),
        ("colab notebook", "running.md"),
        ("csv own data", "own-data.md"),
        ("secure aggregation", "concepts.md"),
        ("statement auditor", "verify.md"),
        ("install gpu cuda", "installation.md"),
        ("flower app", "own-loop.md"),
        ("opacus", "own-loop.md"),
    ],
)
def test_a_search_for_a_fact_finds_a_heading(query, page):
    """The search ranks headings first; a word of a query is found as the beginning of one of a heading."""
    title, *headings = re.findall(r"^#+ (.*)$", text_of(f"docs/{page}"), re.MULTILINE)
    found = [
        heading
        for heading in headings
        if all(
            any(word.startswith(asked) for word in re.findall(r"\w+", f"{title} {heading}".lower()))
            for asked in query.split()
        )
    ]
    assert found


def test_the_search_ranks_the_guide_before_the_api():
    """Names of functions contain the words of many questions: `is_within`, `delta`."""
    api = [text_of(f"docs/{page}") for page in in_navigation(section("API"))]
    assert len(api) > 5
    assert all(text.startswith("---\nsearch:\n  boost: 0.1\n---\n") for text in api)


def test_the_search_for_own_data_finds_its_page_before_the_table_of_keys():
    """The search leaves out "own", and "data" is the heading of a section of the spec."""
    assert text_of("docs/own-data.md").startswith("---\nsearch:\n  boost: 3\n---\n# Your own data\n")
    for page in (
        "concepts",
        "running",
    ):  # so that they are not behind pages of single protocols, and own-data
        assert text_of(f"docs/{page}.md").startswith("---\nsearch:\n  boost: 2\n---\n# ")


def test_the_table_of_epsilons_is_right():
    """Factor, certainty from even odds, accuracy and hits of the best test of Gaussian noise: rounded up."""
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.,]+) \|(.*)\|$", text_of("docs/epsilon.md"), re.MULTILINE)
    assert [float(epsilon) for epsilon, _, _ in rows] == [0.5, 1, 2, 4, 8, 10]
    for epsilon, factor, rest in rows:
        mu = gaussian.mu(epsilon=float(epsilon), delta=1e-5)
        shares = norm.cdf(mu / 2), norm.cdf(mu - norm.isf(0.01))
        expected = [certainty(float(epsilon)), *(f"{math.ceil(1000 * share) / 10:.1f} %" for share in shares)]
        assert float(factor.replace(",", "")) == pytest.approx(math.exp(float(epsilon)), rel=5e-3)
        assert [cell.strip() for cell in rest.split("|")] == expected
    other = upper_bound(gaussian.epsilon(delta=1e-8, mu=gaussian.mu(epsilon=8.0, delta=1e-5)))
    assert f"ε = 8 at δ = 1e-5 has ε = {other} at δ = 1e-8" in text_of("docs/epsilon.md")


def test_pictures_are_small():
    images = DOCS / "images"
    files = [path for path in images.rglob("*") if path.is_file()]
    sizes = {path.relative_to(images).as_posix(): path.stat().st_size for path in files}
    assert {name: size for name, size in sizes.items() if size > 150_000} == {}
    shown = {name for page in TEXTS for name in re.findall(r"images/([\w/-]+\.png)", text_of(page))}
    assert shown == set(sizes)


def test_no_page_loads_anything_from_elsewhere():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert site["theme"]["font"] is False
    # without a file of this name the plugin `offline` loads one of its own from elsewhere
    assert site["extra"]["polyfills"] == ["iframe-worker.js"]
    assert (DOCS / "iframe-worker.js").is_file()
    assert "offline" in site["plugins"]
    (executed,) = (plugin["markdown-exec"] for plugin in site["plugins"] if "markdown-exec" in plugin)
    assert executed["languages"] == ["python"]  # pyodide adds a style sheet of a CDN to every page
    loaded = [*site.get("extra_css", []), *site.get("extra_javascript", [])]
    assert [file for file in loaded if not (DOCS / file).is_file()] == []
    images = {page: re.findall(r"!\[[^]]*\]\((\w+:[^)]*)\)", text_of(page)) for page in TEXTS}
    assert {page: found for page, found in images.items() if found} == {}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_of_pages_outside_the_site_lead_to_files(page):
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text_of(page))]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", TEXTS)
def test_files_that_a_page_names_exist(page):
    rooms = "|".join(path.name for path in SOURCE.iterdir() if path.is_dir())
    of_the_library = quoted(page, rf"({rooms})/[\w/]*(\.py)?")
    of_the_repository = quoted(page, r"(examples|tests|docs|benchmarks|requirements)/[\w./-]*")
    missing = [name for name in of_the_library if not (SOURCE / name).exists()]
    missing += [name for name in of_the_repository if not (ROOT / name).exists()]
    assert missing == []


def test_tests_that_a_page_names_exist():
    written = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    tests = set(re.findall(r"def (test_\w+)", written))
    named = {(page, name) for page in PAGES for name in quoted(page, r"test(_\w+){3,}")}
    assert len(named) > 30
    assert [(page, name) for page, name in sorted(named) if name not in tests] == []


@pytest.mark.parametrize("page", PAGES)
def test_python_names_that_a_page_gives_exist(page):
    for name in sorted(quoted(page, r"sfumato(\.\w+)+(?<!\.json)")):
        assert is_there(name), name
    for name in re.findall(r"^::: (\S+)$", text_of(page), re.MULTILINE):
        assert is_there(name), name


NAMES = {
    "protocols": (get_args(Protocol), ["docs/spec.md"]),
    "losses": ({loss for losses in LOSSES.values() for loss in losses}, ["docs/spec.md"]),
    "observer kinds": (OBSERVER_KINDS, ["docs/command-line.md", "docs/leakage.md"]),
}


@pytest.mark.parametrize("kind", NAMES)
def test_pages_list_every_name_that_a_spec_may_give(kind):
    names, pages = NAMES[kind]
    assert [(page, name) for page in pages for name in names if f"`{name}`" not in text_of(page)] == []


def is_there(name: str) -> bool:
    """Whether ``name`` is a module, or an attribute of one."""
    module = SOURCE.parent / Path(*name.split("."))
    if module.is_dir() or module.with_suffix(".py").is_file():
        return True
    home, _, attribute = name.rpartition(".")
    return hasattr(import_module(home), attribute)


def documented_arguments(text: str) -> list[str]:
    """What stands before the colons of the section ``Args`` of a docstring."""
    section = re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", inspect.cleandoc(text), re.MULTILINE)
    return re.findall(r"^ {4}(\S[^:]*):", section[1], re.MULTILINE) if section else []


@pytest.mark.quick
def test_documented_arguments_are_those_of_the_function():
    """Otherwise the site is not built: griffe warns, and ``make docs`` is strict."""
    other = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = {name.arg for name in ast.walk(node.args) if isinstance(name, ast.arg)}
                found = set(documented_arguments(ast.get_docstring(node, clean=False) or ""))
                if found - given:
                    other[f"{path.name}:{node.lineno}"] = sorted(found - given)
    assert other == {}
