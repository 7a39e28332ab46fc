from __future__ import annotations

import math

import pytest
import torch

from sfumato.learning.evaluation import Score, Scoring, apply_model, score_of
from sfumato.learning.losses import loss_of
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout


def score_in_parts(
    model: torch.nn.Module,
    flat: torch.Tensor,
    features: torch.Tensor,
    targets: torch.Tensor,
    how: Scoring,
    *,
    part: int = 7,
) -> Score:
    """The score of ``model`` with parameters ``flat``, from parts of so many examples."""
    parts = zip(features.split(part), targets.split(part), strict=True)
    return score_of([apply_model(model, flat, x, y, how) for x, y in parts], targets, how)


@pytest.mark.parametrize("part", [1, 7, 100])
def test_equals_the_module_itself(part: int) -> None:
    model = build_model("cnn-small", shape=(1, 8, 8), classes=10, seed=0)
    layout = ParameterLayout.of(model)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(50, 1, 8, 8, generator=generator)
    labels = torch.randint(0, 10, (50,), generator=generator)
    logits = model(features).detach()
    score = score_in_parts(model, layout.read(model), features, labels, Scoring(), part=part)
    assert score.accuracy == pytest.approx(float((logits.argmax(1) == labels).float().mean()))
    assert score.loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-5)


NUMBERS = torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
FLAT = torch.linspace(-1, 1, 12)


def scored(
    task: str, targets: torch.Tensor, *metrics: str, loss: str | None = None, split: int = 60
) -> Score:
    model = torch.nn.Linear(3, 3)
    how = Scoring(task, loss_of(task, loss), metrics)
    halves = [
        (NUMBERS[part], targets[part]) for part in (slice(0, split), slice(split, 60)) if part.start < 60
    ]
    parts = [apply_model(model, FLAT, x, y, how) for x, y in halves]
    return score_of(parts, targets, how)


def outputs() -> torch.Tensor:
    layout = ParameterLayout.of(torch.nn.Linear(3, 3)).unflatten(FLAT)
    return torch.nn.functional.linear(NUMBERS, layout["weight"], layout["bias"])


@pytest.mark.parametrize("split", [60, 23])
def test_metrics_of_numbers(split: int) -> None:
    targets = NUMBERS.flip(1) * 2
    found = scored("regression", targets, "mae", "rmse", "r2", split=split)
    error = (outputs() - targets).double()
    assert math.isnan(found.accuracy)
    assert found.loss == pytest.approx(float(error.square().mean()), rel=1e-5)
    assert found.measures["mae"] == pytest.approx(float(error.abs().mean()), rel=1e-5)
    assert found.measures["rmse"] == pytest.approx(float(error.square().mean().sqrt()), rel=1e-5)
    spread = (targets - targets.mean(dim=0)).double().square().sum(dim=0)
    assert found.measures["r2"] == pytest.approx(
        float((1 - error.square().sum(dim=0) / spread).mean()), rel=1e-4
    )


def area(positive: torch.Tensor, score: torch.Tensor) -> float:
    """Share of pairs of a positive and a negative example that the score puts in order."""
    differences = score[positive][:, None] - score[~positive][None, :]
    return float(((differences > 0).double() + 0.5 * (differences == 0).double()).mean())


def test_metrics_of_label_sets() -> None:
    truth = torch.stack([NUMBERS[:, 0] > 0.3, NUMBERS[:, 1] > 0, torch.zeros(60, dtype=torch.bool)], dim=1)
    found = scored("multi-label", truth.float(), "auc", "f1", split=23)
    guess = outputs() > 0
    assert found.accuracy == pytest.approx(float((guess == truth).float().mean()), rel=1e-6)
    # the third label has no positive example, so no area
    assert found.measures["auc"] == pytest.approx(
        (area(truth[:, 0], outputs()[:, 0]) + area(truth[:, 1], outputs()[:, 1])) / 2
    )
    both = (guess & truth).sum(dim=0)
    f1 = 2 * both / (guess.sum(dim=0) + truth.sum(dim=0)).clamp(min=1)
    assert found.measures["f1"] == pytest.approx(float(f1.mean()), rel=1e-6)


def test_metrics_of_classes() -> None:
    labels = (NUMBERS[:, 0] > 0).long() + (NUMBERS[:, 1] > 0).long()
    found = scored("classification", labels, "auc", "f1")
    shares = outputs().softmax(dim=1)
    areas = [area(labels == k, shares[:, k]) for k in range(3)]
    assert found.measures["auc"] == pytest.approx(sum(areas) / 3, rel=1e-6)
    guess = outputs().argmax(dim=1)
    f1 = [
        2 * int(((guess == k) & (labels == k)).sum()) / int((guess == k).sum() + (labels == k).sum())
        for k in range(3)
    ]
    assert found.measures["f1"] == pytest.approx(sum(f1) / 3)


def test_of_two_classes_the_second_is_the_positive_one() -> None:
    model = torch.nn.Linear(3, 2)
    labels = (NUMBERS[:, 0] > 0).long()
    flat = torch.linspace(-1, 1, 8)
    found = score_in_parts(model, flat, NUMBERS, labels, Scoring(measures=("auc", "f1")))
    weights = ParameterLayout.of(model).unflatten(flat)
    logits = torch.nn.functional.linear(NUMBERS, weights["weight"], weights["bias"])
    assert found.measures["auc"] == pytest.approx(area(labels == 1, logits[:, 1] - logits[:, 0]))
    guess = logits.argmax(dim=1)
    right = int(((guess == 1) & (labels == 1)).sum())
    assert found.measures["f1"] == pytest.approx(2 * right / int((guess == 1).sum() + (labels == 1).sum()))


def test_of_next_tokens() -> None:
    tokens = torch.randint(0, 3, (60, 3), generator=torch.Generator().manual_seed(3))
    model = torch.nn.Embedding(3, 3)
    flat = torch.linspace(-1, 1, 9)
    found = score_in_parts(
        model, flat, tokens, tokens, Scoring("next-token", loss_of("next-token", None), ("perplexity",))
    )
    logits = flat.view(3, 3)[tokens]
    assert found.accuracy == pytest.approx(
        float((logits[:, :-1].argmax(dim=2) == tokens[:, 1:]).float().mean()), rel=1e-6
    )
    assert found.measures["perplexity"] == pytest.approx(math.exp(found.loss))
