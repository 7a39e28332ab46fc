from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tree_worlds import Library, spec_of

from sfumato.engine.base import EngineSettings
from sfumato.errors import EnvelopeError
from sfumato.protocols.tree.local_work import keep_within_
from sfumato.schedule.tree import TreePlan

STEP = {"clip": {"kind": "step", "norm": 0.7}, "noise": {"multiplier": 0.5}}
TRAINING = {"rounds": 3, "steps_per_round": 4, "edge_every": 2, "batch_size": 4, "learning_rate": 0.3}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def break_clipping(library: Library, change: Any, at_call: int) -> None:
    """From its ``at_call``-th call on, let the engine return what ``change`` makes of the updates."""
    train, calls = library.engine.train, 0

    def broken(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        for chunk in train(*arguments):
            yield replace(chunk, updates=change(chunk.updates)) if calls >= at_call else chunk

    library.engine.train = broken  # type: ignore[method-assign]


def only(row: int, factor: float) -> Any:
    def change(updates: torch.Tensor) -> torch.Tensor:
        updates = updates.clone()
        updates[row] *= factor / updates[row].norm()
        return updates

    return change


RESEND = {"training": TRAINING | {"global_step": "resend"}}


# resent at the global step, the whole round is clipped once more, as one message: only the first can break
@pytest.mark.parametrize(
    ("sections", "at_call"), [({}, 1), ({}, 2), ({"privacy": STEP}, 1), ({"privacy": STEP}, 2), (RESEND, 1)]
)
def test_a_message_too_long_stops_the_round(sections: dict[str, Any], at_call: int) -> None:
    library = Library(spec_of(**({"trust": {"trusted_edges": [0]}} | sections)))
    state = library.protocol.initial(library.start)
    before = state.model.clone()
    longest = 0.3 * 0.7 * 4 if "privacy" in sections else 0.2
    break_clipping(library, only(5, longest * 1.01), at_call)
    with pytest.raises(EnvelopeError, match="norm") as caught:
        library.protocol.run_round(state)
    assert caught.value.exit_status == 1
    assert torch.equal(state.model, before)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_message_not_finite_stops_the_round(poison: float) -> None:
    library = Library(spec_of())
    break_clipping(library, lambda updates: updates + poison, 1)
    with pytest.raises(EnvelopeError):
        library.protocol.run_round(library.protocol.initial(library.start))


def test_a_sum_of_steps_longer_than_they_can_reach_stops_the_round() -> None:
    library = Library(spec_of(privacy=STEP))
    break_clipping(library, only(0, 0.3 * 0.7 * 2 * 1.001), 1)
    with pytest.raises(EnvelopeError):
        library.protocol.run_round(library.protocol.initial(library.start))


def test_clipped_steps_far_from_the_origin_stay_within_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float32 moves a model by a little more or less than its step; messages hold the steps themselves."""
    far = 3e5
    spec = spec_of(
        privacy={"clip": {"kind": "step", "norm": 1.0}, "noise": "none"}, trust={"trusted_edges": 1.0}
    )
    library = Library(spec)
    seen: list[torch.Tensor] = []

    def recording(plan: TreePlan, messages: torch.Tensor, *arguments: Any) -> None:
        before = messages.clone()
        keep_within_(plan, messages, *arguments)
        seen.append(torch.stack([before.double().norm(dim=1), messages.double().norm(dim=1)]))

    monkeypatch.setattr("sfumato.protocols.tree.rounds.keep_within_", recording)
    library.protocol.run_round(library.protocol.initial(library.start + far))
    norms = torch.cat(seen, dim=1)
    bound = 0.3 * 2
    assert (norms[0] <= bound).all()
    assert (norms[0] > 0.9 * bound).any()
    assert torch.equal(norms[1], norms[0])


def test_without_a_clip_nothing_is_promised() -> None:
    library = Library(spec_of(protocol="hfl", privacy={}))
    break_clipping(library, only(0, 1e3), 1)
    library.protocol.run_round(library.protocol.initial(library.start))


@pytest.mark.parametrize(
    "sections",
    [
        {"trust": {"trusted_edges": [1]}},
        {"trust": {"trusted_edges": [1]}, "training": TRAINING | {"global_step": "resend", "momentum": 0.5}},
        {"privacy": STEP, "training": TRAINING | {"participation": {"rate": 0.5}}},
        {"training": {"rounds": 3, "local_epochs": 2, "batch_size": 4, "learning_rate": 0.3}},
    ],
)
def test_chunks_and_threads_change_only_rounding(sections: dict[str, Any]) -> None:
    spec = spec_of(topology={"kind": "tree", "edges": 3, "devices_per_edge": [5, 9, 1]}, **sections)
    plain = Library(spec, speed=EngineSettings("cpu", 1, 64 << 20))
    reference = plain.play(2)[-1].model
    vector = 4 * len(plain.start)
    for threads, memory in ((1, 2 * vector), (1, 14 * vector), (2, 64 << 20), (3, 8 * vector)):
        library = Library(spec, speed=EngineSettings("cpu", threads, memory))
        state = library.protocol.initial(library.start)
        for _ in range(2):
            state, facts = library.protocol.run_round(state)
        torch.testing.assert_close(state.model, reference, rtol=1e-4, atol=1e-5)
        again = Library(spec, speed=EngineSettings("cpu", threads, memory)).play(2)[-1].model
        assert torch.equal(again, state.model)  # the same settings: the same bits
        assert np.isfinite(facts.noise_std)
