"""A user's own code: what it raises is said to be its own, and only commands that train run it."""

import json
import sys
import textwrap

import pytest
from places import ROOT

from sfumato.cli import main
from sfumato.errors import SpecError
from sfumato.spec import load_spec
from sfumato.user_code import call_user_code, user_code_location

pytestmark = pytest.mark.usefixtures("no_report")

EXAMPLES = ROOT / "examples"
QUICK = ["--set", "training.rounds=1", "--set", "topology.devices_per_edge=2", "--device", "cpu", "--quiet"]


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module of the user's own: its import leaves a file, its model does what it is told."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)
    text = """
        import pathlib
        import torch

        pathlib.Path(__file__).with_name("ran").touch()

        class Ending(torch.nn.Linear):
            def forward(self, x):
                if len(x) != 3:  # trials of the shape, which come before training, have three examples
                    raise SystemExit(0)
                return super().forward(x.flatten(1))

        def plain():
            if pathlib.Path(__file__).with_name("end").exists():
                raise SystemExit(0)
            return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

        def ending():
            return Ending(64, 10)
    """
    (tmp_path / "own_nets.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return tmp_path / "ran"


def test_a_model_that_ends_the_program_is_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "quickstart", "--set", "model.kind=sys:exit", *QUICK]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "model.kind: got 'sys:exit'; the factory failed: it ended the program" in said


def test_a_model_that_ends_the_program_while_it_trains_is_a_failure(own_module, capsys):
    assert main(["run", "quickstart", "--set", "model.kind=own_nets:ending", *QUICK]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "code that was called failed: it ended the program (SystemExit: 0) (" in said
    assert "own_nets.py, line 10, in forward)" in said


@pytest.mark.usefixtures("fast_workers")
def test_a_model_that_ends_the_program_in_a_sweep_is_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    models = "model.kind=sys:exit,softmax"
    arguments = ["--over", models, *QUICK[:6], "--workers", "1", "--out", "grid"]
    assert main(["sweep", "quickstart", *arguments]) == 1
    said = capsys.readouterr()
    assert "the factory failed: it ended the program (SystemExit" in said.err
    assert "Traceback" not in said.err
    other = tmp_path / "grid" / "points" / "kind=softmax"  # goes on
    assert (other / "seed-0" / "model.pt").exists()


def test_a_model_that_ends_the_program_in_an_attack_is_a_failure(own_module, capsys):
    arguments = ["--set", "model.kind=own_nets:plain", *QUICK, "--out", "done", "--record-views", "edge:0"]
    assert main(["run", "quickstart", *arguments]) == 0
    own_module.with_name("end").touch()
    assert main(["attack", "done", "--observer", "edge:0", "--kind", "inversion"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the factory failed: it ended the program (SystemExit: 0) (" in said


def test_an_audit_plays_messages_and_no_model(own_module, capsys):
    arguments = ["--set", "model.kind=own_nets:plain", *QUICK[:4], "--trials", "1000"]
    assert main(["audit", "quickstart", *arguments]) == 0
    assert not own_module.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "quickstart"],
        ["show", "quickstart"],
        ["account", "quickstart"],
        ["account", "quickstart", "--json"],
        ["account", str(EXAMPLES / "pfels" / "pfels.yaml")],
        ["show", str(EXAMPLES / "dp-ogl" / "cl.yaml")],
    ],
    ids=" ".join,
)
def test_what_does_not_train_does_not_run_it(arguments, own_module, capsys):
    assert main([*arguments, "--set", "model.kind=own_nets:plain"]) == 0
    assert not own_module.exists()
    assert "own_nets" not in sys.modules
    out = " ".join(capsys.readouterr().out.split())
    if arguments[0] == "show":
        assert "own_nets:plain, your own code, which is not run here; its size is not known" in out
    if "pfels" in arguments[1]:
        assert "the number of parameters of own_nets:plain, which only a run can tell" in out


def test_a_report_does_not_run_it(own_module, monkeypatch, capsys):
    arguments = ["--set", "model.kind=own_nets:plain", *QUICK, "--out", "done"]
    assert main(["run", "quickstart", *arguments]) == 0
    assert own_module.exists()  # so the test can fail
    own_module.unlink()
    monkeypatch.delitem(sys.modules, "own_nets")
    assert main(["report", "done"]) == 0
    assert main(["compare", "done", "done"]) == 0
    assert not own_module.exists()


def test_only_an_interrupt_goes_on():
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_user_code("model.kind", "a:b", "the factory failed", interrupted)

    def stopped() -> None:
        raise GeneratorExit

    with pytest.raises(SpecError, match=r"^model.kind: got 'a:b'; the factory failed: GeneratorExit \("):
        call_user_code("model.kind", "a:b", "the factory failed", stopped)


def test_errors_of_ours_and_of_libraries_have_no_place_of_the_users():
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    assert user_code_location(caught.value).endswith(
        "have_no_place_of_the_users"
    )  # this file counts as the user's
    within = caught.value.with_traceback(caught.tb.tb_next)
    assert user_code_location(within) is None
    with pytest.raises(SpecError) as caught:
        load_spec("no such spec")
    assert user_code_location(caught.value.with_traceback(caught.tb.tb_next)) is None
