"""What a run really sent, beside what the oracle says it sends: the oracle's facts checked on the runtime.

With a tiny learning rate all that moves is noise. Of every round the oracle is told who sent (read off the
recorded messages, or off ``ledger.json`` where a session hides them), and says how large the noise is in
every vector that the cloud and the edges receive; the recorded vectors must be as large.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from oracle_tree_outcomes import ZonePlays
from oracle_tree_reader import read_tree
from oracle_tree_round import Attack, Label, Round
from oracle_tree_world import TreeWorld

import sfumato

Recorded = dict[Label, np.ndarray]
"""(kind, aggregation, tier, party) to the vector."""


def play(spec: Mapping[str, Any], folder: Path) -> tuple[list[dict[str, Recorded]], dict[str, Any]]:
    """Run ``spec``; what each aggregator recorded in each round, and what ``ledger.json`` keeps."""
    world = read_tree(spec)
    names = [
        "cloud" if tier == 0 else f"{name}:{node}"
        for tier, name in enumerate(world.names)
        for node in range(len(world.parents[tier]))
    ]
    sfumato.run(sfumato.load_spec(spec), out=folder, record_views=names)
    rounds = []
    for number in range(1, world.rounds + 1):
        heard = {}
        for name in names:
            file = np.load(folder / "views" / name.replace(":", "-") / f"round-{number:06d}.npz")
            places = zip(file["kind"], file["step"], file["tier"], file["party"], strict=True)
            keys = [(str(kind), int(step), int(tier), int(party)) for kind, step, tier, party in places]
            heard[name] = dict(zip(keys, file["vector"], strict=True))
        rounds.append(heard)
    return rounds, json.loads((folder / "ledger.json").read_text())["realised"]


def stds(
    spec: Mapping[str, Any], rounds: list[dict[str, Recorded]], realised: Mapping[str, Any]
) -> Iterator[tuple[Label, float, float]]:
    """Of what the cloud received and broadcast: label, standard deviation by the oracle, as recorded.

    What it broadcasts is reckoned as the public sees it: the cloud's own noise is in it. The first round is
    left out: it is the one before it that a model is compared with.
    """
    world = read_tree(spec)
    games = [
        Round(world, world.zones[0][0], nodes, frozenset()) for nodes in (frozenset({(0, 0)}), frozenset())
    ]
    game = games[0]
    start = rounds[0]["cloud"]["broadcast", len(world.aggregations) - 1, 0, 0]
    for number, heard in enumerate(rounds[1:], start=1):
        outcome = tuple(
            tuple(_state(game, heard, realised, number, step, zone) for zone in range(game.zones))
            for step in range(game.steps)
        )
        for one, wanted in zip(games, ("sent", "broadcast"), strict=True):
            played = one.play(outcome, Attack((1,) * game.steps))
            for label, row in zip(played.labels, played.noise, strict=True):
                if label[0] == wanted and label in heard["cloud"]:
                    yield label, float(np.linalg.norm(row)), float(np.std(heard["cloud"][label] - start))
        start = heard["cloud"]["broadcast", game.steps - 1, 0, 0]


def _state(
    game: Round, heard: dict[str, Recorded], realised: Mapping[str, Any], number: int, step: int, zone: int
) -> Any:
    """What became of a zone: who sent is recorded at its node, or how many is kept in the ledger."""
    world, plays = game.world, ZonePlays(game, zone)
    name = "cloud" if world.leaf_tier == 0 else f"{world.names[-1]}:{zone}"
    tier = world.leaf_tier + 1
    sent = {party for kind, s, t, party in heard[name] if (kind, s, t) == ("sent", step, tier)}
    sent &= set(world.zones[zone])
    count = realised["survivors"][number][step][zone] if "survivors" in realised else None
    if world.hops[-1] != "plain":
        sent = set(world.zones[zone][-count:]) if count else set()
    assert count is None or len(sent) == count or world.sends < 1
    counts = tuple(sum(_alike(world, game, device, one) for device in sent) for one in plays.classes)
    formed = world.hops[-1] == "plain" or count is None or count > 0
    chosen = plays.sizes if world.draw[0] == "all" else counts
    state = plays._state(chosen, counts, step, formed=formed, heard=plays.listens)
    return plays._at(state, counts, step)


def _alike(world: TreeWorld, game: Round, device: int, one: Any) -> bool:
    role = "unit" if device == game.unit else "other"
    return (role, world.weights[device], world.device_std[device]) == (one.role, one.weight, one.stds)
