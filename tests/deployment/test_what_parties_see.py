"""What an honest but curious cloud is sent: noised sums of its edges, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_parties import staged
from rehearsals import STAR, TREE, SimulatedRandomness

from sfumato.deployment.messages import FrameKind, RoundPosition, decode_answer, decode_question
from sfumato.deployment.subtree import Subtree
from sfumato.wire.frames import parse_frame

MASKED_EDGES = TREE | {
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
    "transport": {"devices_to_edge": "secure-aggregation"},
}
QUIET_DEVICES = TREE | {"trust": {"trusted_edges": [0, 1]}}
"""Both edges are trusted: all noise is theirs."""


def test_the_cloud_sees_a_sum_of_every_edge_with_its_noise(tmp_path: Path) -> None:
    """The whole dump: one frame an edge and round, of one length, which holds what the edge released."""
    with staged(QUIET_DEVICES, tmp_path) as stage:
        terms = stage.terms
        edges = [terms.edge(index) for index in range(2)]
        for edge in edges:
            stage.edge(edge)._randomness = SimulatedRandomness(terms.plan, stage.inputs, edge)
        model = np.zeros(terms.parameters, np.float32)
        _, carried = stage.play(model)
        frames = [parse_frame(data) for data in carried]
        dump = [frame for frame in frames if frame.recipient == terms.cloud]
        assert sorted(frame.sender for frame in dump) == edges
        assert {(frame.kind, frame.session) for frame in dump} == {(FrameKind.ANSWER, terms.session)}
        assert {len(frame.payload) for frame in dump} == {8 + 32 + 8 * terms.parameters}
        for frame in dump:
            position, _, seen = decode_answer(frame.payload, terms.parameters)
            assert position == terms.at(0)
            raw, noise = np.zeros(terms.parameters, np.int64), np.zeros(terms.parameters, np.int64)
            for one in frames:
                if one.recipient == frame.sender and one.kind == FrameKind.ANSWER:
                    raw += decode_answer(one.payload, terms.parameters)[2]
            for index in range(terms.last + 1):
                noise += own_noise(stage, frame.sender, RoundPosition(0, index))
            assert np.array_equal(seen, raw + noise)
            assert np.abs(noise).min() > 0
        for frame in frames:  # nothing of a device goes to the cloud, or to another edge
            assert frame.sender >= terms.cloud or frame.recipient == terms.parent(frame.sender)
            assert frame.sender != terms.cloud or frame.recipient in edges


def own_noise(stage, edge: int, position: RoundPosition):
    from sfumato.deployment.collecting import with_own_noise

    key = SimulatedRandomness(stage.terms.plan, stage.inputs, edge).noise_key(position)
    return with_own_noise(stage.terms, edge, position, np.zeros(stage.terms.parameters, np.int64), key)


@pytest.mark.parametrize("document", [TREE, MASKED_EDGES])
def test_frames_within_an_edge_do_not_pass_the_cloud(tmp_path: Path, document: dict[str, Any]) -> None:
    """Raw messages for a trusted edge are among them."""
    with staged(document, tmp_path) as stage:
        terms, told = stage.terms, []
        for question in stage.cloud().ask(0, np.zeros(terms.parameters, np.float32)):
            edge = parse_frame(question).recipient
            below = Subtree(stage.edge(edge), {child: stage.device(child) for child in terms.children(edge)})
            told += below.receive(question)
        frames = [parse_frame(data) for data in told]
        assert [(frame.kind, frame.recipient) for frame in frames] == [(FrameKind.ANSWER, terms.cloud)] * 2
        for data in told:
            stage.cloud().receive(data)
        assert stage.cloud().released is not None


def test_devices_see_only_models(tmp_path: Path) -> None:
    with staged(TREE, tmp_path) as stage:
        terms, model = stage.terms, np.zeros(stage.terms.parameters, np.float32)
        _, carried = stage.play(model)
        told = [frame for frame in map(parse_frame, carried) if frame.recipient < terms.cloud]
        assert len(told) == terms.cloud * (terms.last + 1)
        for frame in told:
            position, _, seen = decode_question(frame.payload, terms.parameters)
            assert frame.sender == terms.parent(frame.recipient)
            assert position.aggregation > 0 or np.array_equal(seen, model)
        later = {frame.sender: frame.payload for frame in told if frame.payload[7] == 1}
        assert all(later[frame.sender] == frame.payload for frame in told if frame.payload[7] == 1)


def test_the_cloud_of_a_star_sees_every_device_with_its_noise(tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        terms = stage.terms
        released, carried = stage.play(np.zeros(terms.parameters, np.float32))
        dump = [frame for frame in map(parse_frame, carried) if frame.recipient == terms.cloud]
        assert sorted(frame.sender for frame in dump) == list(range(terms.cloud))
        seen = [decode_answer(frame.payload, terms.parameters)[2] for frame in dump]
        assert np.array_equal(released, sum(seen))
        how = terms.grid(terms.at(0)).device_rounding(0, 1.0, 1.0)
        for (
            steps
        ) in seen:  # a message without noise is at most as long as its bound, and noise is much longer
            assert float(np.linalg.norm(steps)) > 2 * how.sensitivity


@pytest.mark.parametrize("document", [STAR, TREE, MASKED_EDGES])
def test_no_frame_is_longer_than_what_is_read_of_one(tmp_path: Path, document: dict[str, Any]) -> None:
    with staged(document, tmp_path) as stage:
        terms = stage.terms
        _, carried = stage.play(np.zeros(terms.parameters, np.float32))
        assert carried
        for data in carried:
            sender, recipient = parse_frame(data).sender, parse_frame(data).recipient
            parent = recipient if terms.parent(sender) == recipient else sender
            assert len(data) <= terms.largest_answer(parent)
