"""Mistakes of a new user: exit 2, one line for each, with the place, the value, and what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from key_effects import keys_of_models

from sfumato.cli import main
from sfumato.spec.load import builtin_text
from sfumato.spec.other_words import KEYS, key_meant

QUICK = builtin_text("quickstart")
SITES = """name: hospitals
protocol: h2fdp
data: {source: patients.csv, label_column: ill, site_column: site}
topology:
  kind: tree
  sites: [{name: charite, devices: 3}, {name: ucl, devices: 3}]
trust: {trusted: [charite]}
training: {rounds: 2, local_steps: 4, edge_every: 2, batch_size: 5, learning_rate: 0.1}
privacy: {clip: {kind: update, norm: 1.0}, noise: {multiplier: 1.0}}
"""
FILES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    # what is wrong: the text, what it becomes, the spec, and what the message says
    "key misspelt": ("rounds: 15", "round: 15", QUICK, ("training.round:", "did you mean 'rounds'?")),
    "section misspelt": ("training:", "trainning:", QUICK, ("trainning:", "did you mean 'training'?")),
    "protocol misspelt": ("protocol: h2fdp", "protocol: h2fpd", QUICK, ("did you mean 'h2fdp'?",)),
    "percent sign": (
        "learning_rate: 0.5", "learning_rate: 50%", QUICK, ("training.learning_rate:", "50 % is 0.5")
    ),
    "percent for a share": (
        "trusted_edges: 0.5", "trusted_edges: 60", QUICK, ("must be a share from 0 to 1", "60 % is 0.6")
    ),
    "negative number": ("rounds: 15", "rounds: -3", QUICK, ("got -3", "from 1 to 1,000,000")),
    "word for a number": (
        "epsilon: 8.0", "epsilon: strong", QUICK, ("privacy.noise.epsilon:", "must be a number")
    ),
    "no such observer": ("for: cloud", "for: clowd", QUICK, ("privacy.noise.for:", "did you mean 'cloud'?")),
    "delta above 1": ("delta: 1.0e-5", "delta: 5", QUICK, ("privacy.delta:", "from 1e-30 to 0.999999999")),
    "clip of nothing": ("norm: 1.0", "norm: 0", QUICK, ("privacy.clip.norm:", "must be a number from 1e-12")),
    "noise without a clip": (
        "  clip: {kind: update, norm: 1.0}      # update: the whole message; step: each gradient\n", "",
        QUICK, ("privacy.clip:", "is required", "{kind: update, step or example, norm:"),
    ),
    "longer than the round": (
        "edge_every: 10", "edge_every: 30", QUICK, ("training.edge_every:", "local_steps, which is 20")
    ),
    "steps and epochs": (
        "local_steps: 20", "local_steps: 20, local_epochs: 1", QUICK, ("give local_steps or local_epochs",)
    ),
    "topology of another protocol": (
        "protocol: h2fdp", "protocol: dp-ogl", QUICK, ("topology.kind:", "must be groups with protocol")
    ),
    "model misspelt": ("kind: softmax", "kind: sofmax", QUICK, ("model.kind:", "did you mean 'softmax'?")),
    "switch that is a word": (
        "trusted_edges: 0.5", "cloud: maybe", QUICK, ("trust.cloud:", "must be true or false")
    ),
    "tabs": ("  delta", "\tdelta", QUICK, ("line 13", "indent with spaces, not with tabs")),
    "key twice": ("seed: 0", "seed: 0\nseed: 1", QUICK, ("line 5", "'seed' is given twice", "line 4")),
    "site misspelt in trust": (
        "trusted: [charite]", "trusted: [charité]", SITES, ("trust.trusted:", "did you mean 'charite'?")
    ),
    "site twice": (
        "name: ucl", "name: charite", SITES, ("topology.sites[1].name:", "another site already: sites[0]")
    ),
    "site that the data lack": (
        "name: ucl", "name: kcl", SITES, ("data.site_column:", "did you mean 'kcl'?", "no row has")
    ),
    "column misspelt": ("ill,", "il,", SITES, ("data.label_column:", "did you mean 'ill'?", "age, ill")),
    "site column misspelt": (
        "site_column: site", "site_column: sites", SITES, ("data.site_column:", "did you mean 'site'?")
    ),
    "file misspelt": (
        "source: patients.csv", "source: patient.csv", SITES,
        ("data.source: patient.csv", "did you mean 'patients.csv'?"),
    ),
}  # fmt: skip
CALLS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "values of a sweep by another option": (
        ["sweep", "quickstart", "--epsilon", "1,2"], ("write: --over privacy.noise.epsilon=1,2",)
    ),
    "a folder that holds runs": (["account", "runs"], ("is a folder", "runs in it: runs/one")),
    "a folder with other files": (
        ["run", "mine.yaml", "--out", "notes"],
        (
            "--out: got 'notes'; holds files that a run would replace",
            "(groups.pt, metrics.parquet, model.pt and 1 more)", "notes-2 is free",
        ),
    ),
    "spec misspelt": (["account", "mien.yaml"], ("mien.yaml:", "did you mean 'mine.yaml'?")),
    "built-in spec misspelt": (["account", "quikstart"], ("did you mean 'quickstart'?",)),
    "rate in percent": (
        ["account", "quickstart", "--set", "training.participation.rate=30"],
        ("--set training.participation.rate:", "30 % is 0.3"),
    ),
    "set without a value": (
        ["account", "quickstart", "--set", "training.rounds"],
        ("--set training.rounds:", "key=value, e.g."),
    ),
    "set of an unknown key": (
        ["account", "quickstart", "--set", "training.epochs=3"],
        ("--set training.epochs:", "did you mean 'local_epochs'?"),
    ),
    "edge that there is not": (
        ["account", "quickstart", "--observer", "edge:9"],
        ("--observer:", "edge:0 to edge:4"),
    ),
    "unit misspelt": (["account", "quickstart", "--unit", "devise:3"], ("--unit:", "device:0 to device:199")),
    "device that there is not": (
        ["account", "quickstart", "--unit", "device:999"],
        ("--unit:", "device:0 to device:199"),
    ),
    "target without a number": (
        ["plan", "quickstart", "--target", "cloud"],
        ("--target:", "OBSERVER=EPSILON", "e.g. cloud=2"),
    ),
    "neither a spec nor a run": (
        ["statement", "runs/nothing"],
        ("runs/nothing: is neither a file nor a run folder nor a built-in spec; built in: dp-fedavg",),
    ),
    "no run folder": (["report", "nothing"], ("nothing:", "no such run folder")),
    "key as an option": (
        ["account", "quickstart", "--rounds", "4"], ("--rounds:", "write: --set training.rounds=4")
    ),
    "key as an option, by an equals sign": (
        ["run", "quickstart", "--epsilon=4"], ("--epsilon:", "write: --set privacy.noise.epsilon=4")
    ),
    "epochs as an option": (
        ["run", "quickstart", "--epochs", "5"],
        ("--epochs:", "write: --set training.local_epochs=5 --set training.local_steps=null"),
    ),
    "option of other programs": (["run", "quickstart", "--gpu"], ("--gpu:", "write: --device cuda")),
    "output by another name": (["run", "quickstart", "-o", "x"], ("-o:", "write: --out")),
    "no seeds": (["run", "quickstart", "--seeds", "0"], ("--seeds: got '0'; must be at least 1",)),
    "seeds in words": (
        ["run", "quickstart", "--seeds=two"], ("--seeds: got 'two'; must be a valid integer",)
    ),
    "device of other programs": (
        ["run", "quickstart", "--device", "tpu"], ("--device: got 'tpu'; must be one of 'auto', 'cpu'",)
    ),
    "table of one class": (
        ["run", "one-class.yaml"],
        ("data.label_column: got 'ill'; has one value in all rows", "name another column"),
    ),
    "seed as an option": (["run", "quickstart", "--seed", "3"], ("--seed:", "write: --set seed=3")),
    "observer shortened": (["account", "quickstart", "--obs", "cloud"], ("--obs:", "write: --observer")),
    "command of other programs": (["train", "quickstart"], ("train:", "write: sfumato run")),
    "table as a spec": (["run", "patients.csv"], ("is a table", "`sfumato init` writes a spec for it")),
    "set without an equals sign": (
        ["run", "quickstart", "--set", "training.rounds", "4"], ("write: --set training.rounds=4",)
    ),
    "set by a colon": (
        ["run", "quickstart", "--set", "training.rounds:", "4"], ("write: --set training.rounds=4",)
    ),
    "change without --set": (
        ["account", "quickstart", "training.rounds=4"], ("write: --set training.rounds=4",)
    ),
    "server as an observer": (
        ["account", "quickstart", "--observer", "server"], ("for 'server' write cloud",)
    ),
    "edge without a colon": (
        ["account", "quickstart", "--observer", "edge1"], ("for 'edge1' write edge:1",)
    ),
    "patient as a unit": (
        ["account", "quickstart", "--unit", "patient:0"], ("for 'patient:0' write person:0",)
    ),
    "option misspelt": (["init", "--labels", "ill"], ("--labels: is no option (did you mean '--label'?)",)),
    "table of init without --csv": (
        ["init", "clinics", "patients.csv"], ("patients.csv: cannot be read; write: --csv patients.csv",)
    ),
    "table without headings": (
        ["init", "clinics", "--csv", "no-headings.csv"],
        ("two columns are called '1'", "a CSV file: is the line of headings missing?"),
    ),
    "text without quotes": (
        ["init", "clinics", "--csv", "patients.csv", "--row", "a", "patient"],
        ("patient: cannot be read; write: --row 'a patient'",),
    ),
    "text without quotes, before the name": (
        ["init", "--row", "a", "stay", "in", "hospital"], ("write: --row 'a stay in hospital'",)
    ),
    "name of two words": (
        ["init", "my", "clinics"], ("clinics: cannot be read; write: one name: sfumato init my-clinics",)
    ),
    "key as an option without a value": (
        ["validate", "quickstart", "--lr"], ("--lr:", "write: --set training.learning_rate=VALUE")
    ),
}  # fmt: skip
# Words of other libraries: what is set, and what the message says to write instead.
WORDS = {
    "training.lr=0.1": "write training.learning_rate",
    "training.epochs=3": "did you mean 'local_epochs'?",
    "training.batch=4": "write training.batch_size",
    "training.num_rounds=4": "did you mean 'rounds'?",
    "epsilon=4": "write privacy.noise.epsilon",
    "privacy.epsilon=4": "write privacy.noise.epsilon",
    "privacy.noise_multiplier=1": "write privacy.noise.multiplier",
    "privacy.max_grad_norm=1": "write privacy.clip.norm",
    "privacy.noise.sigma=1": "write privacy.noise.multiplier",
    "privacy.target_delta=1e-5": "write privacy.delta",
    "topology.num_clients=4": "write topology.devices of a star, topology.devices_per_edge of a tree",
    "data.target=ill": "write data.label_column",
    "data.sep=;": "write data.separator",
    "data.normalize=true": "write data.scale",
    "random_state=1": "write seed",
    "strategy=fedavg": "write protocol",
    "privacy.unit=patient": "for 'patient' write person: all rows of one, with data.person_column",
    "data.patient_id=id": "write data.person_column",
    "privacy.unit=hospital": "for 'hospital' write device: all data of a device",
    "protocol=fedavg": "for 'fedavg' write dp-fedavg",
    "privacy.clip.kind=per-sample": "for 'per-sample' write example",
    "model=logistic": "for 'logistic' write softmax",
    "model=net.py": "write net.py:NAME",
    "data.task=binary": "for 'binary' write classification",
    "privacy.clip=1.0": "write {kind: update, norm: 1.0}",
    "privacy.noise=1.0": "write {multiplier: 1.0}, or {epsilon: 1.0, for: cloud}",
    "training.participation=0.1": "write {kind: poisson, rate: 0.1}",
    "data.partition=0.5": "write {alpha: 0.5}",
    "topology=10": "write {kind: star, devices: 10}",
    "data=mnist": "write {source: mnist}",
    "data.partition=non-iid": "write {kind: labels, labels_per_device: 2}, or {kind: dirichlet, alpha: 0.5}",
    "data.partition=random": "write iid",
    "trust.trusted_edges=edge:1, edge:2": "write [1, 2]",
    "trust.server=true": "write trust.cloud",
    "privacy.noise.for=server": "for 'server' write cloud",
    "watch=cloud": "write [cloud]",
    "training.learning_rate=0,1": "write 0.1",
    "training.loss=mse": "write data.task: regression",
    "training.device=cuda": "write cuda as the option device of the command run",
    "training.local_epochs=1": "null leaves one out",
    "model.layers=3": "write model.hidden, with kind: mlp",
    "model.dropout=0.5": "write layers torch.nn.Dropout in a model of your own",
    "out=runs/x": "write the folder as the option out of the command",
    "data.source=patients.xlsx": "save the spreadsheet as .csv",
    "protocol=fedavg-dp": "for 'fedavg-dp' write dp-fedavg",
    "protocol=fed-avg": "for 'fed-avg' write dp-fedavg",
    "protocol=dp-hfl": "for 'dp-hfl' write hfl-dp",
    "protocol=fedprox": "training.drift_correction: {kind: fedprox",
    "protocol=ms-fedav": "did you mean 'ms-fedavg', by which nobody adds noise, or 'dp-fedavg'?",
    "protocol=hfll": "did you mean 'hfl', by which nobody adds noise, or 'hfl-dp'?",
    "protocol=wflp": "did you mean 'wfl-p', by which nobody adds noise, or 'wfl-pdp'?",
    "privacy.noise=non": "did you mean 'none', by which nobody adds noise?",
    "training.drift_correction=non": "(did you mean 'none'?)",
    "privacy.noise=laplace": "write {multiplier: 1.0}, or {epsilon: 8, for: cloud}: noise is Gaussian",
    "trust.trusted_edges=all": "write 1.0",
    "trust=none": "write {trusted_edges: 0.0}",
    "transport=secagg": "write {devices_to_edge: secure-aggregation}",
    "transport.devices_to_edge=secagg": "for 'secagg' write secure-aggregation",
    "privacy.delta=10^-5": "write 1e-5",
    "privacy.delta=1/1000": "write 0.001",
    "privacy.clip={kind: update, norm: 1,5}": "of a number with a comma? write a point",
    "data.source=patients.txt": "call a file of columns .csv",
    "data.source=arrays.npy": "save arrays by numpy.savez as .npz",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{site},{age},{age % 2}" for site in ("charite", "ucl") for age in range(30)]
    Path("patients.csv").write_text("\n".join(["site,age,ill", *rows]) + "\n", "utf-8")
    Path("no-headings.csv").write_text("1,1,0\n2,1,1\n", "utf-8")


def said(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("sfumato: ")
    assert "Traceback" not in err
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("name", FILES)
def test_mistakes_in_a_spec(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong, text, parts = FILES[name]
    assert text.count(right) >= 1
    changed = text.replace(right, wrong, 1)
    Path("mine.yaml").write_text(changed, "utf-8")
    message = said(capsys, ["account", "mine.yaml"])
    for part in parts:
        assert part in message
    if name == "file misspelt":
        return  # a file that cannot be read is no mistake in one line of the spec
    assert message.startswith("sfumato: mine.yaml")
    assert "line " in message


@pytest.mark.parametrize("name", CALLS)
def test_mistakes_in_a_call(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(QUICK, "utf-8")
    Path("one-class.yaml").write_text(SITES.replace("patients.csv", "one-class.csv"), "utf-8")
    well = Path("patients.csv").read_text("utf-8").replace(",1\n", ",0\n")
    Path("one-class.csv").write_text(well, "utf-8")
    mine = ("metrics.parquet", "report.html", "groups.pt", "model.pt", "a.txt")
    for file in ("runs/one/spec.yaml", *(f"notes/{name}" for name in mine)):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("mine", "utf-8")
    arguments, parts = CALLS[name]
    message = said(capsys, arguments)
    for part in parts:
        assert part in message


@pytest.mark.parametrize("change", WORDS)
def test_words_of_other_libraries(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert WORDS[change] in said(capsys, ["account", "quickstart", "--set", change])


def test_words_that_keys_have_are_no_hints_to_others() -> None:
    """A hint leads to a key that there is, and never away from one."""
    there = keys_of_models()
    meant = {word: key_meant(word) or "" for word in KEYS}
    assert [word for word, key in meant.items() if key.split()[0] not in there] == []
    short = {key.rpartition(".")[2]: key for key in there if key.count(".") == 1}
    same = {word: key for word, key in meant.items() if word in short and word == key.rpartition(".")[2]}
    assert {word: short[word] for word in same} == same


def test_a_delta_that_promises_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["account", "quickstart", "--set", "privacy.delta=0.1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "δ = 0.1 is at least 1/n for n = 200 devices" in told
    assert "take a δ well below 0.005" in told


def test_several_mistakes_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    text: Any = QUICK.replace("rounds: 15", "round: 0").replace("delta: 1.0e-5", "delta: 5")
    Path("mine.yaml").write_text(text.replace("norm: 1.0", "norm: -1"), "utf-8")
    assert main(["account", "mine.yaml"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2] for line in lines] == ["training.round", "privacy.delta", "privacy.clip.norm"]
    assert all(line.startswith("sfumato: mine.yaml: ") for line in lines)
    assert [int(line.rpartition("line ")[2].rstrip(")")) for line in lines] == [11, 13, 14]


def test_several_options_that_there_are_not_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """With values of other options that look like options, and a word that is like nothing."""
    wrong = [
        "init",
        "x",
        "--csv",
        "--eps",
        "--labels",
        "ill",
        "--sits=site",
        "--eps",
        "3",
        "--qwxyz",
        "--eps",
    ]
    assert main(wrong) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == (
        "",
        [
            "sfumato: --labels: is no option (did you mean '--label'?)",
            "sfumato: --sits: is no option (did you mean '--sites'?)",
            "sfumato: --eps: is no option; write: --epsilon",
            "sfumato: --qwxyz: is no option",
        ],
    )


def test_a_unit_that_there_is_not_is_answered_by_all_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A person's own number is no unit: the message has every spelling that is accepted, and no other."""
    rows = [f"{site},P{age},{age},{age % 2}" for site in ("charite", "ucl") for age in range(30)]
    people = ["site,id,age,ill", *(row.replace("ucl,P", "ucl,Q") for row in rows)]
    Path("patients.csv").write_text("\n".join(people) + "\n", "utf-8")
    made = ["init", "clinics", "--csv", "patients.csv", "--label", "ill", "--site", "site", "--person", "id"]
    assert main([*made, "--epsilon", "4"]) == 0
    capsys.readouterr()
    message = said(capsys, ["account", "clinics.yaml", "--unit", "P17"])
    assert "must be person:0 to person:1, or device:0 to device:1; named are charite, ucl" in message
    for unit in ("person:0", "person:1", "device:0", "device:1", "ucl"):
        assert main(["account", "clinics.yaml", "--unit", unit]) == 0, unit
    assert main(["account", "clinics.yaml", "--unit", "record:0"]) == 2


def test_a_gpu_that_is_not_here_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    told = said(capsys, ["run", "quickstart", "--device", "cuda", "--out", "gpu"])
    assert "device: got 'cuda'; no CUDA device is available here" in told
    assert not Path("gpu").exists()


def test_files_of_others_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with a file that a run would write over is refused, and the file is kept."""
    Path("mine.yaml").write_text(QUICK, "utf-8")
    Path("notes").mkdir()
    Path("notes/metrics.parquet").write_text("mine", "utf-8")
    assert "metrics.parquet" in said(capsys, ["run", "mine.yaml", "--out", "notes"])
    assert [file.name for file in Path("notes").iterdir()] == ["metrics.parquet"]
    assert Path("notes/metrics.parquet").read_text("utf-8") == "mine"


def test_resuming_a_finished_run_says_that_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    Path("small.yaml").write_text(QUICK, "utf-8")
    small = ["--set", "training.rounds=1", "--set", "topology.devices_per_edge=2", "--out", "one"]
    assert main(["run", "small.yaml", *small]) == 0
    assert "nothing was left to do" not in capsys.readouterr().out
    assert main(["run", "small.yaml", *small, "--resume"]) == 0
    assert "nothing was left to do: all rounds had been run before" in capsys.readouterr().out
    more = [*small, "--set", "training.rounds=2", "--resume"]
    message = said(capsys, ["run", "small.yaml", *more])
    assert "only a run whose noise is a multiplier can be extended); give a new folder" in message
    assert "only training.rounds may" not in message
