"""Messages name arguments as the caller wrote them: options are known to the command line only."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from source_tree import modules, nodes

import sfumato as sf
from sfumato.arguments import Argument, Call, spelled_by
from sfumato.cli import main
from sfumato.cli.options import OptionSpelling
from sfumato.errors import SpecError

SHELL_COMMANDS = {  # pages that a person reads, with commands to be typed, and commands of other programs
    "deployment/flower/environment.py",
    "deployment/flower/relays.py",
    "deployment/known_consents.py",
    "deployment/party_sheet.py",
    "explore/edited_spec.py",
    "explore/jobs.py",
    "report/results/cost_of_privacy.py",
    "report/results/effect_of_control.py",
    "studies/page/document.py",
}


def texts(tree: ast.Module) -> Iterator[str]:
    """All strings of a module that are not docstrings."""
    bare = {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


@pytest.mark.quick
def test_only_the_command_line_knows_its_options() -> None:
    option, found = re.compile(r"(?<![\w-])--[a-z]"), set()
    for name, tree, text in modules():
        if name.startswith("cli/") or not option.search(text):
            continue  # most modules have no such text at all
        if any(map(option.search, texts(tree))):
            found.add(name)
    assert found == SHELL_COMMANDS


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda spec: sf.run(spec, rounds=5),
            "rounds: got 5; is no argument of run; it is a key of the spec:",
        ),
        (lambda spec: sf.account(spec, lr=0.1), "lr: got 0.1; is no argument of account; it is a key"),
        (lambda spec: sf.account("quickstart"), "spec: got 'quickstart'; must be a Spec"),
        (lambda spec: sf.run("quickstart"), "spec: got 'quickstart'; must be a Spec"),
        (lambda spec: sf.plan("quickstart", {"cloud": 2}), "spec: got 'quickstart'; must be a Spec"),
        (lambda spec: sf.plan(spec, ["cloud=2"]), "targets: got ['cloud=2']; must be a mapping of observers"),
        (lambda spec: sf.sweep(spec, ["seed"]), "over: got ['seed']; must be a mapping of keys to values"),
        (lambda spec: sf.load_spec(3), "source: got 3; must be a file, the name of a built-in spec"),
        (lambda spec: sf.compare("runs/a"), "run_folders: got 'runs/a'; must be a list of run folders"),
        (lambda spec: sf.account(spec, delta="small"), "delta: got 'small'; must be from"),
        (lambda spec: sf.run(spec, seeds="3"), "seeds: got '3'; must be from 1 to 10,000"),
        (lambda spec: sf.verify_run("nothing"), "nothing: no such run folder"),
        (lambda spec: sf.statement("nothing", "page.pdf"), "out: got 'page.pdf'; must end with .html"),
        (lambda spec: setattr(spec, "seed", 3), "seed: got 3; a spec is not changed by assignment"),
        (lambda spec: setattr(spec.training, "rounds", 3), "rounds: got 3; a spec is not changed by"),
        (lambda spec: sf.account(spec, unit=0.5), "unit: got 0.5; must be text"),
        (lambda spec: sf.account(spec, observer=3), "observer: got 3; must be text"),
        (lambda spec: sf.load_spec("quickstart", "seed=3"), "overrides: got 'seed=3'; must be a list"),
    ],
)
def test_values_of_the_wrong_kind_are_refused_in_one_line(
    call: Callable[[sf.Spec], object], said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        call(sf.load_spec("quickstart"))
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("named", "in_python", "as_option"),
    [
        (Argument("record_views"), "record_views", "--record-views"),
        (Argument("resume", True), "resume=True", "--resume"),
        (Argument("minimize", "noise"), "minimize='noise'", "--minimize noise"),
        (Argument("record_views", ["edge:0"]), "record_views=['edge:0']", "--record-views edge:0"),
        (Argument("overrides").at("training.rounds"), "overrides: training.rounds", "--set training.rounds"),
        (Argument("targets").at("cloud"), "targets: cloud", "--target cloud"),
        (Argument("resume", True).at("seed"), "resume=True: seed", "--resume: seed"),
        (Argument("observers"), "observers", "--observer"),
        (
            Call("run", "SPEC", (Argument("out", "x"), Argument("resume", True))),
            "sf.run(SPEC, out='x', resume=True)",
            "sfumato run SPEC --out x --resume",
        ),
    ],
    ids=str,
)
def test_an_argument_is_written_as_its_caller_would(
    named: Argument | Call, in_python: str, as_option: str
) -> None:
    assert str(named) == in_python
    with spelled_by(OptionSpelling()):
        assert str(named) == as_option
    assert str(named) == in_python


def test_errors_in_python_name_arguments_and_on_the_command_line_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = sf.load_spec("quickstart")
    with pytest.raises(SpecError, match=r"^observer: got 'edge:9'; must be edge:0 to edge:4"):
        sf.account(spec, unit="device:0", observer="edge:9")
    with pytest.raises(SpecError, match=r"^overrides: training.rounds: got 0; must be") as refused:
        sf.load_spec("quickstart", ["training.rounds=0"])
    assert refused.value.argument == Argument("overrides", key="training.rounds")
    with pytest.raises(SpecError, match=r"^over: training.rounds: got 0; must be"):
        sf.sweep("quickstart", {"training.rounds": [0]}, out=tmp_path)
    with pytest.raises(SpecError, match=r"^over: needs a key and its values"):
        sf.sweep("quickstart", {}, out=tmp_path)
    with pytest.raises(SpecError, match=r"^force: cannot be used with resume: it replaces the run"):
        sf.run(spec, out=tmp_path, force=True, resume=True)
    said = {
        ("account", "quickstart", "--observer", "edge:9"): "--observer: got 'edge:9'; must be edge:0",
        ("account", "quickstart", "--set", "training.rounds=0"): "--set training.rounds: got 0; must be",
        ("sweep", "quickstart", "--over", "training.rounds=0"): "--over training.rounds: got 0; must be",
    }
    for arguments, message in said.items():
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith(f"sfumato: {message}")


def test_a_key_of_the_spec_gets_the_name_of_its_file_and_an_argument_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["account", "quickstart", "--set", "topology.edges=600"]) == 2  # found after reading
    assert capsys.readouterr().err.startswith("sfumato: quickstart: data.partition.empty_devices: got")
    assert main(["account", "quickstart", "--observer", "device:0,cloud", "--unit", "device:0"]) == 2
    assert capsys.readouterr().err.startswith("sfumato: --observer: got 'device:0,cloud'; must not contain")
