"""Vectors of devices: zero until they are written, and kept of those that took part."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from resumed_specs import PFELS, VARIANTS
from tree_worlds import Library

from sfumato.protocols.device_vectors import DeviceVectors
from sfumato.schedule.participation import draw_participants
from sfumato.spec.document import Spec

MODEL = torch.zeros(3)


def test_a_vector_is_zero_until_it_is_written() -> None:
    before = DeviceVectors(MODEL)
    after = before.copy()
    after.write_(np.array([7, 2]), torch.tensor([[1.0, 2, 3], [4, 5, 6]]))
    assert after.of(np.array([2, 0, 7])).tolist() == [[4, 5, 6], [0, 0, 0], [1, 2, 3]]
    assert before.of(np.array([2, 7])).tolist() == [[0] * 3] * 2
    assert after.of(np.array([], dtype=np.int64)).shape == (0, 3)


def test_a_written_vector_keeps_no_more_memory_than_its_own() -> None:
    found = DeviceVectors(MODEL)
    found.write_(np.array([4]), torch.ones(1000, 3)[500:501])
    assert found.written[4].untyped_storage().nbytes() == 12


def test_it_comes_back_from_a_checkpoint_whatever_it_was_written_in() -> None:
    one, other = DeviceVectors(MODEL), DeviceVectors(MODEL)
    vectors = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    one.write_(np.array([7, 2]), vectors)
    for row, device in ((1, 2), (0, 7)):
        other.write_(np.array([device]), vectors[row : row + 1])
    assert all(map(torch.equal, one.pack(), other.pack()))
    again = DeviceVectors.unpack(one.pack(), MODEL)
    assert sorted(again.written) == [2, 7]
    assert torch.equal(again.of(np.array([7, 2])), vectors)
    assert DeviceVectors.unpack(DeviceVectors(MODEL).pack(), MODEL).written == {}


@pytest.mark.parametrize(
    "packed",
    [[torch.zeros(5, 3)], [torch.tensor([1]), torch.zeros(1, 4)], [1, 2]],
    ids=["one", "long", "none"],
)
def test_what_is_not_a_checkpoint_is_refused(packed: list[torch.Tensor]) -> None:
    with pytest.raises(ValueError, match=r"unpack|as long as the model|do not fit"):
        DeviceVectors.unpack(packed, MODEL)


@pytest.mark.parametrize("spec", [VARIANTS["SCAFFOLD"], PFELS], ids=["SCAFFOLD", "error feedback"])
def test_a_run_keeps_those_of_devices_that_took_part(spec: Spec) -> None:
    library = Library(spec)
    state, _ = library.protocol.run_round(library.protocol.initial(library.start))
    part = draw_participants(library.plan, 0).tolist()
    kept = state.memory if state.variates is None else state.variates.devices
    assert kept is not None
    assert len(part) < library.plan.tree.device_count
    assert set(kept.written) <= set(part)
    assert any(vector.any() for vector in kept.written.values())
