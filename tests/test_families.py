"""One class a family of topologies: parts are imported late, and nobody else asks which family a spec is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import sfumato as sf
from sfumato.families import FAMILIES, GROUPS, TREE, family_of, family_of_topology
from sfumato.spec.document import Protocol
from sfumato.spec.topology import GroupTopology, StarTopology, TreeTopology

SOURCE = Path(sf.__file__).parent
# Words by which a module asks what family a plan or a spec is of.
QUESTIONS = {
    "a plan's class": r"isinstance\([^()]*\b(TreePlan|GroupPlan)\b",
    "dispatch on the class": r"\bsingledispatch\b",
    "a table of classes": r"\{\s*(TreePlan|GroupPlan)\s*:",
    "the kind of topology": r"topology(\.kind|\"\]\[\"kind\"\]|\.get\(\"kind\"\)) *(==|!=|in)",
    "a match on classes": r"case (TreePlan|GroupPlan)\(",
    "a list of protocols": r"[({\[]\s*(\"dp-ogl\"\s*,|\"h2fdp\"\s*,\s*\"hfl\"\s*,\s*\"hfl-dp\"\s*,\s*\"hdp)",
}
# The one exception: the accountant of groups does not know specs, and names its own four kinds.
ALLOWED = {
    ("privacy/groups/facts.py", "a list of protocols"),
    ("verify/facts.py", "a list of protocols"),  # the checker imports nothing else of Sfumato
}


def test_every_protocol_and_topology_has_one_family():
    protocols = [protocol for family in FAMILIES for protocol in family.protocols]
    assert sorted(protocols) == sorted(get_args(Protocol))
    topologies = [kind for family in FAMILIES for kind in family.topologies]
    assert sorted(topologies) == sorted(
        section.model_fields["kind"].default for section in (StarTopology, TreeTopology, GroupTopology)
    )


def test_specs_are_of_their_family():
    assert family_of(sf.load_spec("quickstart")) is TREE
    assert family_of(sf.load_spec(Path(__file__).parent / "spec" / "specs" / "ogl-ring.yaml")) is GROUPS
    assert family_of_topology("star") is TREE
    assert family_of_topology("mesh") is None
    assert family_of_topology(["tree"]) is None


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_other_module_asks(question):
    asking = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "families.py" and re.search(QUESTIONS[question], path.read_text("utf-8"))
    }
    assert asking == {module for module, asked in ALLOWED if asked == question}


def test_the_questions_are_found_where_they_are_asked():
    """The patterns above match what the code asked before there was one place for it."""
    before = {
        "a plan's class": "if not isinstance(plan, TreePlan) or plan.air:",
        "dispatch on the class": "from functools import singledispatch",
        "a table of classes": "drawings = {TreePlan: ShownTree, GroupPlan: ShownGroups}",
        "the kind of topology": 'return topology.get("kind") == "groups"',
        "a match on classes": "case GroupPlan():",
        "a list of protocols": '_GROUPED = frozenset({"dp-ogl", "dp-ogl+"})',
    }
    assert before.keys() == QUESTIONS.keys()
    for question, line in before.items():
        assert re.search(QUESTIONS[question], line), question


def test_loading_the_families_loads_no_part_of_them():
    program = (
        "import sys, sfumato.families\n"
        "loaded = {name for name in sys.modules if name.startswith('sfumato')}\n"
        "own = {'sfumato', 'sfumato.families', 'sfumato.errors', 'sfumato.arguments'}\n"
        "assert loaded <= own, loaded - own\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_accounting_loads_no_torch_and_no_part_that_trains_or_draws():
    program = (
        "import sys, sfumato as sf\n"
        "sf.account(sf.load_spec('quickstart', ['training.rounds=2']), unit='device:0', observer='cloud')\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('sfumato.')}\n"
        "assert 'torch' not in sys.modules\n"
        "assert not rooms & {'protocols', 'engine', 'auditing', 'cli', 'report', 'simulation'}, rooms\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
