"""Losses by name equal torch's, in closed form too; a user's own must give one number an example."""

import pytest
import torch
from torch.nn import functional

from sfumato.errors import SpecError
from sfumato.learning.losses import BUILT_IN, check_loss, loss_of
from sfumato.spec.model import LOSSES

OUTPUTS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) * 3
NUMBERS = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)) * 3
LABELS = torch.tensor([0, 3, 1, 2, 2, 0])
TORCHS = {
    "cross-entropy": functional.cross_entropy,
    "squared-error": functional.mse_loss,
    "absolute-error": functional.l1_loss,
    "huber": functional.huber_loss,
    "binary-cross-entropy": functional.binary_cross_entropy_with_logits,
}
NAMED = [(task, loss) for task, losses in BUILT_IN.items() for loss in losses]
CLOSED = [(task, loss) for task, loss in NAMED if loss.write_gradient is not None]


def targets_of(task: str) -> torch.Tensor:
    return {"classification": LABELS, "multi-label": (NUMBERS > 0).float()}.get(task, NUMBERS)


def test_the_spec_knows_these_names():
    assert {task: tuple(loss.name for loss in losses) for task, losses in BUILT_IN.items()} == LOSSES
    assert all(loss_of(task, None) is losses[0] for task, losses in BUILT_IN.items())
    assert all(loss_of(task, loss.name) is loss for task, loss in NAMED)


@pytest.mark.parametrize(("task", "loss"), CLOSED, ids=lambda x: getattr(x, "name", x))
def test_losses_are_torchs_and_gradients_autograds(task, loss):
    outputs, targets = OUTPUTS.clone().requires_grad_(), targets_of(task)
    found = loss.of_examples(outputs, targets)
    assert found.shape == (6,)
    torch.testing.assert_close(found.mean(), TORCHS[loss.name](OUTPUTS, targets))
    (expected,) = torch.autograd.grad(found.sum(), outputs)
    for stacked in (OUTPUTS[None], OUTPUTS.t().contiguous()[None].mT):  # as layers lay outputs out
        written = torch.empty_like(stacked)
        loss.write_gradient(stacked, targets[None], written)
        torch.testing.assert_close(written[0], expected)


def test_next_tokens_are_predicted_from_those_before():
    tokens = torch.tensor([[1, 2, 3], [3, 0, 2]])
    outputs = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(2))
    found = loss_of("next-token", None).of_examples(outputs, tokens)
    for example in range(2):
        expected = functional.cross_entropy(outputs[example, :2], tokens[example, 1:])
        torch.testing.assert_close(found[example], expected)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_losses:mean_over_batch", r"must return the loss of every example, \[6\], not \(\)"),
        ("own_losses:failing", r"the loss failed: ZeroDivisionError: .*own_losses\.py, line"),
        ("own_losses:absent", "has no absent"),
    ],
)
def test_what_a_users_loss_must_be_like(name, said, tmp_path, monkeypatch):
    lines = "import torch\n\n\ndef mean_over_batch(a, b):\n    return torch.mean(a)\n\n\n"
    (tmp_path / "own_losses.py").write_text(lines + "def failing(a, b):\n    return 1 / 0\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecError, match=said) as caught:
        check_loss(loss_of("regression", name), OUTPUTS, NUMBERS)
    assert caught.value.place == "training.loss"
