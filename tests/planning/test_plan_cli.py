"""``sfumato plan``: what is printed and written, and how it refuses."""

import sys

import pytest

import sfumato as sf
from sfumato.cli import main

pytestmark = pytest.mark.needs("plan")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def refused(capsys, *arguments):
    assert main(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_it_prints_the_plan_and_writes_what_account_verifies(here, capsys):
    targets = ["--target", "cloud=2", "--target", "edge=8", "--target", "peer=8"]
    assert main(["plan", "h2fdp-fmnist", *targets]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    for said in (
        "cloud=2",
        "binding",
        "price",
        "edge:0/devices",
        "own noise",
        "no target",
        "written: h2fdp-fmnist-plan.yaml",
    ):
        assert said in out
    text = (here / "h2fdp-fmnist-plan.yaml").read_text(encoding="utf-8")
    assert text.startswith("# Planned for cloud=2, edge=8, peer=8.\nname: h2fdp-fmnist-plan\n")
    assert main(["account", "h2fdp-fmnist-plan.yaml"]) == 0
    assert sf.account(sf.load_spec("h2fdp-fmnist-plan.yaml")).epsilon(0, "cloud") == pytest.approx(
        2, rel=1e-3
    )
    assert sf.account(sf.load_spec("h2fdp-fmnist-plan.yaml")).claims == ()


def test_energy_prints_what_was_weighed(capsys):
    changes = [
        "trust.cloud=false",
        "topology.devices=8",
        "data={source: digits, partition: iid}",
        "model=softmax",
    ]
    changes += ["training.participation=all", "training.rounds=4"]
    call = ["plan", "dp-fedavg", "--target", "cloud=2", "--minimize", "energy", "--out", "mine.yaml"]
    assert main([*call, *(part for change in changes for part in ("--set", change))]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "chosen" in out
    assert "energy J" in out


@pytest.mark.usefixtures("no_report")
def test_a_run_takes_the_plan(here, capsys):
    changes = [
        "--set",
        "training.rounds=2",
        "--set",
        "topology.devices_per_edge=4",
        "--set",
        "data.partition=iid",
    ]
    assert main(["plan", "quickstart", "--target", "cloud=2", "--out", "mine.yaml", *changes]) == 0
    assert main(["run", "mine.yaml", "--quiet"]) == 0
    assert (here / "runs" / "quickstart-plan" / "privacy.json").is_file()


def test_the_default_file_is_never_overwritten(here, capsys):
    (here / "quickstart-plan.yaml").write_text("mine", encoding="utf-8")
    assert "name another file with --out" in refused(capsys, "quickstart", "--target", "cloud=2")
    assert (here / "quickstart-plan.yaml").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    "target", ["cloud", "cloud=", "=2", "cloud=two", "cloud=-1", "cloud=inf", "cloud=nan"]
)
def test_a_target_must_be_an_observer_and_a_number(target, capsys):
    assert "must be OBSERVER=EPSILON" in refused(capsys, "quickstart", "--target", target)


def test_one_observer_has_one_target(capsys):
    said = refused(capsys, "quickstart", "--target", "cloud=2", "--target", "cloud=3")
    assert "contradicts cloud=2" in said


def test_no_target_is_refused(capsys):
    assert main(["plan", "quickstart"]) == 2
    assert "--target" in capsys.readouterr().err


def test_what_cannot_be_met_is_refused_in_a_line(capsys, here):
    said = refused(capsys, "h2fdp-fmnist", "--target", "cloud=2", "--target", "noise=0.1")
    assert "conflicts with noise=0.1" in said
    assert not list(here.iterdir())


def test_a_file_that_cannot_be_written(capsys):
    said = refused(capsys, "h2fdp-fmnist", "--target", "cloud=2", "--out", "nowhere/plan.yaml")
    assert "cannot be written" in said


@pytest.mark.parametrize("module", ["cvxpy", "clarabel"])
def test_a_missing_extra_is_one_line(module, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    said = refused(capsys, "h2fdp-fmnist", "--target", "cloud=2")
    assert "needs the extra 'plan': pip install 'sfumato[plan]'" in said
