"""Regression, label sets and next tokens: read, trained, scored, and refused where they do not fit."""

import numpy as np
import pandas as pd
import pytest
import torch

import sfumato as sf
from sfumato.data.dataset import dataset_of
from sfumato.errors import DataError, SfumatoError, SpecError
from sfumato.simulation.training_inputs import TrainingInputs

RNG = np.random.default_rng(3)
X = RNG.normal(size=(240, 5)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.0, 0.5, 1.0] + 0.1 * RNG.normal(size=240)).astype(np.float32)
SETS = np.stack([X[:, 0] > 0, X[:, 1] > 0.2, X[:, 2] + X[:, 3] > 0], axis=1)
TOKENS = (np.arange(12)[None] + RNG.integers(0, 20, (240, 1))) % 20


def spec_of(task: str = "regression", **changes) -> sf.Spec:
    data = {"source": "python:x", "task": task, **changes.pop("data", {})}
    training = {"rounds": 3, "local_steps": 10, "batch_size": 8, "learning_rate": 0.1}
    document = {
        "name": task,
        "protocol": "hfl",
        "data": data,
        "topology": {"edges": 2, "devices_per_edge": 4},
        "training": training | changes.pop("training", {}),
    }
    return sf.load_spec(document | changes)


class NextToken(torch.nn.Module):
    """Predicts from the token before."""

    def __init__(self, vocabulary: int = 20) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(vocabulary, 8)
        self.out = torch.nn.Linear(8, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.words(ids))


@pytest.mark.parametrize("loss", [None, "absolute-error", "huber"])
def test_a_regression_finds_the_line(loss, tmp_path):
    spec = spec_of(metrics=["mae", "r2"], training={} if loss is None else {"loss": loss})
    metrics = sf.run(spec, data=(X, Y), out=tmp_path / "run").metrics
    assert metrics["accuracy"].isna().all()
    assert metrics["r2"].iloc[-1] > 0.8
    assert metrics["mae"].iloc[-1] < metrics["mae"].iloc[0]
    assert list(metrics.columns[:5]) == ["round", "accuracy", "loss", "mae", "r2"]


def test_label_sets_are_learnt(tmp_path):
    run = sf.run(
        spec_of("multi-label", metrics=["auc", "f1"], training={"learning_rate": 1.0}),
        data=(X, SETS),
        out=tmp_path / "run",
    )
    last = run.metrics.iloc[-1]
    assert last["accuracy"] > 0.85
    assert last["auc"] > 0.95
    assert tuple(run.model(torch.from_numpy(X)).shape) == (240, 3)


@pytest.mark.parametrize("given", [(TOKENS,), (TOKENS, np.zeros(240, int)), (TOKENS.astype(np.uint8),)])
def test_next_tokens_are_learnt_from_whole_numbers(given, tmp_path):
    spec = spec_of(
        "next-token", data={"vocabulary": 20}, metrics=["perplexity"], training={"learning_rate": 3.0}
    )
    run = sf.run(spec, data=given, model=NextToken(), out=tmp_path / "run")
    last = run.metrics.iloc[-1]
    assert last["accuracy"] > 0.95
    assert last["perplexity"] == pytest.approx(np.exp(last["loss"]))
    assert run.metrics["perplexity"].iloc[0] > last["perplexity"]


def test_privacy_does_not_depend_on_the_task():
    privacy = {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}}
    changes = {"protocol": "h2fdp", "privacy": privacy}
    tables = [
        sf.account(spec_of(task, **changes), data=data).table()
        for task, data in (
            ("regression", (X, Y)),
            ("multi-label", (X, SETS)),
            ("classification", (X, X[:, 0] > 0)),
        )
    ]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


def test_groups_score_every_workers_model(tmp_path):
    topology = {"kind": "groups", "structure": "ring", "groups": 3, "devices": 6}
    privacy = {"clip": {"kind": "update", "norm": 5.0}, "noise": "none"}
    changes = {"protocol": "dp-ogl", "topology": topology, "privacy": privacy, "metrics": ["r2"]}
    metrics = sf.run(spec_of(**changes), data=(X, Y), out=tmp_path / "run").metrics
    assert metrics["personal_accuracy"].isna().all()
    assert metrics["r2"].iloc[-1] > 0.5


@pytest.mark.usefixtures("no_report")
def test_a_resumed_run_has_the_same_metrics(tmp_path):
    spec = spec_of(metrics=["rmse"])
    whole = sf.run(spec, data=(X, Y), out=tmp_path / "whole").metrics["rmse"].tolist()

    def stop(done) -> None:
        if done.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sf.run(spec, data=(X, Y), out=tmp_path / "parts", on_round=stop)
    assert sf.run(spec, data=(X, Y), out=tmp_path / "parts", resume=True).metrics["rmse"].tolist() == whole
    with pytest.raises(DataError, match=r"data\.source"):
        sf.run(
            spec_of(metrics=["rmse"], training={"rounds": 4}),
            data=(X, Y + 1),
            out=tmp_path / "parts",
            resume=True,
        )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_of_a_table_are_targets(suffix, tmp_path):
    frame = pd.DataFrame(X, columns=list("abcde")).assign(first=Y, second=2 * Y)
    path = tmp_path / f"rows.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path, index=False)
    columns = {
        "source": str(path),
        "label_column": ["first", "second"],
        "scale": {"second": [0, 4], "a": [0, 2]},
    }
    data = inputs_of(spec_of(data=columns)).data
    assert data.facts.outputs == 2
    assert data.facts.input_shape == (5,)
    both = np.concatenate([data.train_targets, data.test_targets])
    np.testing.assert_allclose(np.sort(both[:, 0]), np.sort(Y), rtol=1e-5)
    np.testing.assert_allclose(both[:, 0], 2 * both[:, 1], rtol=1e-5, atol=1e-6)
    all_features = np.concatenate([data.train_features, data.test_features])
    np.testing.assert_allclose(np.sort(all_features[:, 0]), np.sort(X[:, 0]) / 2, rtol=1e-5, atol=1e-6)


def inputs_of(spec: sf.Spec) -> TrainingInputs:
    from sfumato.schedule.resolve import resolve

    return TrainingInputs.of(resolve(spec))


def test_arrays_and_saved_sets_have_targets(tmp_path):
    np.savez(tmp_path / "rows.npz", features=X, labels=SETS)
    data = inputs_of(spec_of("multi-label", data={"source": str(tmp_path / "rows.npz")})).data
    assert data.train_targets.shape == (216, 3)
    np.savez(tmp_path / "tokens.npz", features=TOKENS)
    source = {"source": str(tmp_path / "tokens.npz"), "vocabulary": 20}
    spec = spec_of("next-token", data=source, model=f"{__name__}:NextToken")
    data = inputs_of(spec).data
    assert data.train_features.dtype == np.int64
    assert data.facts.outputs == 20


@pytest.mark.needs("hub")
def test_columns_of_a_saved_data_set_are_targets(tmp_path):
    import datasets

    columns = {"x": X.tolist(), "y": Y.tolist(), "sets": SETS.astype(int).tolist(), "ids": TOKENS.tolist()}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "saved"))
    source = {"source": str(tmp_path / "saved"), "image_column": "x"}
    data = inputs_of(spec_of(data=source | {"label_column": "y"})).data
    both = np.concatenate([data.train_targets, data.test_targets])[:, 0]
    np.testing.assert_allclose(np.sort(both), np.sort(Y), rtol=1e-5)
    data = inputs_of(spec_of("multi-label", data=source | {"label_column": "sets"})).data
    assert data.test_targets.shape == (24, 3)
    tokens = {"source": str(tmp_path / "saved"), "image_column": "ids", "vocabulary": 20}
    data = inputs_of(spec_of("next-token", data=tokens, model=f"{__name__}:NextToken")).data
    assert data.train_features.max() == 19


@pytest.mark.usefixtures("no_report")
def test_a_data_set_of_ones_own_has_targets(tmp_path):
    none = np.zeros(240, np.int64)
    parts = (X[:200], none[:200], X[200:], none[200:])
    made = dataset_of("mine", *parts, train_targets=Y[:200, None], test_targets=Y[200:, None])
    metrics = sf.run(spec_of(metrics=["r2"]), data=made, out=tmp_path / "run").metrics
    assert metrics["r2"].iloc[-1] > 0.8
    with pytest.raises(DataError, match="has targets, with task classification"):
        sf.run(spec_of("classification"), data=made, out=tmp_path / "other")
    with pytest.raises(DataError, match="has no train_targets"):
        sf.run(spec_of(), data=dataset_of("mine", *parts), out=tmp_path / "other")


@pytest.mark.usefixtures("no_report")
def test_a_loss_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def weighted(a, b):\n    return 3 * (a - b).square().mean(dim=1)\n", "utf-8"
    )
    (tmp_path / "spec.yaml").write_text(sf.dump_spec(spec_of(metrics=["r2"])), "utf-8")
    spec = sf.load_spec(
        tmp_path / "spec.yaml", ["training.loss=mine:weighted", "training.learning_rate=0.03"]
    )
    own = sf.run(spec, data=(X, Y), out=tmp_path / "run")
    named = sf.run(
        spec_of(metrics=["r2"], training={"learning_rate": 0.09}), data=(X, Y), out=tmp_path / "other"
    )
    np.testing.assert_allclose(own.metrics["r2"], named.metrics["r2"], rtol=1e-3)
    assert "training.loss" in sf.load_spec(own.folder.path / "spec.yaml").hashes
    (tmp_path / "mine.py").write_text(
        "def weighted(a, b):\n    return (a - b).square().mean(dim=1)\n", "utf-8"
    )
    changed = spec.model_copy(update={"training": spec.training.model_copy(update={"rounds": 4})})
    with pytest.raises(DataError, match=r"training\.loss"):
        sf.run(changed, data=(X, Y), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("task", "changes", "said"),
    [
        ("regression", {"training": {"loss": "cross-entropy"}}, r"training\.loss: .* must be squared-error"),
        ("classification", {"training": {"loss": "huber"}}, r"training\.loss: .* must be cross-entropy"),
        ("regression", {"training": {"loss": "hubber"}}, "did you mean 'huber'"),
        ("regression", {"training": {"loss": "mse"}}, r"task: regression \(for 'mse' write squared-error\)$"),
        ("classification", {"training": {"loss": "mae"}}, "write data.task: regression and loss"),
        ("regression", {"metrics": ["auc"]}, "metrics: got 'auc'; must be of mae, rmse, r2"),
        ("classification", {"metrics": ["f1", "f1"]}, "must name each metric once"),
        ("next-token", {}, r"data\.vocabulary: is required"),
        ("next-token", {"data": {"vocabulary": 20, "label_column": "a"}}, "must be left out"),
        ("classification", {"data": {"label_column": ["a", "b"]}}, "must be one column"),
        ("regression", {"data": {"partition": {"alpha": 1.0}}}, r"partition\.kind: .* task: classification"),
        ("multi-label", {"data": {"partition": {"labels_per_device": 2}}}, "goes with task: classification"),
        ("regression", {"topology": {"edges": 2, "devices_per_edge": 4, "zones": "data"}}, r"zones\.kind"),
        ("regression", {"data": {"source": "digits"}}, "goes with data of your own"),
        ("classification", {"data": {"source": "digits", "vocabulary": 20}}, "goes with data of your own"),
    ],
)
def test_what_does_not_go_with_a_task(task, changes, said):
    with pytest.raises(SpecError, match=said):
        sf.account(spec_of(task, **changes))


@pytest.mark.parametrize(
    ("task", "changes", "given", "said"),
    [
        ("regression", {}, (X, np.where(Y[3] == Y, np.nan, Y)), "row 4: every label must be a finite number"),
        ("regression", {}, (X, np.array(["a"] * 240)), "must be numbers"),
        ("multi-label", {}, (X, SETS * 2), r"row \d+: got .*; labels of task multi-label must be 0 or 1"),
        ("next-token", {"data": {"vocabulary": 10}}, (TOKENS,), "row 1, place .* whole number from 0 to 9"),
        ("next-token", {"data": {"vocabulary": 10}}, (X,), "must be a token id"),
        ("classification", {}, (X,), "must be a pandas DataFrame"),
        ("regression", {"model": f"{__name__}:NextToken"}, (X, Y), "the model does not take examples"),
    ],
)
def test_what_is_wrong_with_data_of_a_task(task, changes, given, said, tmp_path):
    with pytest.raises(SfumatoError, match=said):
        sf.run(spec_of(task, **changes), data=given, out=tmp_path / "run")


@pytest.mark.usefixtures("no_report")
def test_a_run_of_another_task_is_not_attacked(tmp_path):
    sf.run(spec_of(), data=(X, Y), out=tmp_path / "run", record_views=["edge:0"])
    with pytest.raises(SpecError, match=r"data\.task: .* must be classification to attack"):
        sf.attack(tmp_path / "run", observer="edge:0", kind="membership")
