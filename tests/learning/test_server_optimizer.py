from __future__ import annotations

import pytest
import torch

from sfumato.errors import SpecError
from sfumato.learning.server_optimizer import ServerAdam, ServerOptimizer, ServerSGD


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ServerSGD(0.5), lambda p: torch.optim.SGD(p, lr=0.5)),
        (ServerSGD(0.5, 0.9), lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9)),
        (ServerAdam(0.1), lambda p: torch.optim.Adam(p, lr=0.1)),
        (
            ServerAdam(0.1, 0.5, 0.9, 1e-3),
            lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.5, 0.9), eps=1e-3),
        ),
    ],
)
def test_equals_torch_on_minus_the_update(ours: ServerOptimizer, theirs) -> None:
    generator = torch.Generator().manual_seed(0)
    model = torch.randn(7, generator=generator)
    parameter = torch.nn.Parameter(model.clone())
    optimizer = theirs([parameter])
    state = ours.initial(model)
    for round_ in range(5):
        update = torch.randn(7, generator=generator)
        parameter.grad = -update
        optimizer.step()
        before, kept = model.clone(), [moment.clone() for moment in state.moments]
        next_state, next_model = ours.step(state, model, update)
        assert torch.equal(model, before)
        assert all(torch.equal(a, b) for a, b in zip(state.moments, kept, strict=True))
        state, model = next_state, next_model
        assert state.rounds == round_ + 1
        torch.testing.assert_close(model, parameter.detach(), rtol=1e-5, atol=1e-6)


def test_plain_averaging_by_default() -> None:
    server = ServerSGD()
    _, model = server.step(server.initial(torch.ones(2)), torch.ones(2), torch.tensor([1.0, 2.0]))
    assert model.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ServerSGD(0.0),
        lambda: ServerSGD(1.0, 1.0),
        lambda: ServerAdam(-1.0),
        lambda: ServerAdam(1.0, beta1=1.0),
        lambda: ServerAdam(1.0, beta2=-0.1),
        lambda: ServerAdam(1.0, epsilon=0.0),
    ],
)
def test_refusals(make) -> None:
    with pytest.raises(SpecError, match="server"):
        make()
