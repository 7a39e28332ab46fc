"""Random trees whose devices move and whose trust changes; and the same rounds as trees of their own."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from message_graph.trees import TreeAsMessages

from sfumato.network.moves import trees_over_time
from sfumato.privacy.observers import Party
from sfumato.privacy.records import RecordReleases, noised_steps, releases_by_batches
from sfumato.privacy.release import Exposure
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

Document = dict[str, Any]


def random_moves(rng: Random) -> Document:
    """A spec of edges under a cloud, where devices move and trust changes now and then."""
    edges = rng.choice((2, 2, 3, 4))
    sizes = [rng.randint(1, 5 if edges < 4 else 3) for _ in range(edges)]
    rounds = rng.choice((2, 3, 4, 6))
    steps = rng.choice((1, 2, 4))
    kind = rng.choice(("all", "all", "all", "poisson", "fixed"))
    document: Document = {
        "name": "moving",
        "protocol": "h2fdp",
        "seed": rng.randrange(1000),
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": edges, "devices_per_edge": sizes},
        "trust": {"cloud": rng.random() < 0.1},
        "training": {"rounds": rounds, "local_steps": steps, "batch_size": 4, "learning_rate": 0.1},
        "privacy": {
            "clip": {"kind": rng.choice(("update", "step")), "norm": 1.0},
            "noise": {"multiplier": rng.choice((0.3, 1.0, 4.0))},
            "neighbours": rng.choice(("zero-out", "replace")),
        },
    }
    document["training"]["edge_every"] = rng.choice([n for n in (1, 2, 4) if n <= steps])
    if document["training"]["edge_every"] < steps and rng.random() < 0.3:
        document["training"]["global_update"] = "resend"
    if rng.random() < 0.7:
        document["training"] |= random_schedules(rng, edges, steps)
    least = [1] * edges
    if kind == "poisson":
        document["training"]["participation"] = {"kind": "poisson", "rate": 0.5}
    elif kind == "fixed":
        least = [rng.randint(1, min(sizes))] * edges
        if rng.random() < 0.5:
            least = [rng.randint(1, size) for size in sizes]
        document["training"]["participation"] = {"kind": "fixed", "count": least}
    document["topology"]["moves"] = {"trace": random_trace(rng, sizes, rounds, least)}
    changes = sorted({0, *(rng.randint(2, rounds) for _ in range(rng.choice((0, 1, 2))))})
    document["trust"]["from"] = {
        first: [edge for edge in range(edges) if rng.random() < 0.4] for first in changes
    }
    return document


def random_record_moves(rng: Random) -> Document:
    """One of `random_moves` whose records are drawn one by one."""
    document = random_moves(rng)
    document["training"]["batches"] = "poisson"
    kind = rng.choice(("update", "step", "example", "at step"))
    document["privacy"]["clip"]["kind"] = "example" if kind == "at step" else kind
    if kind == "at step":
        document["privacy"]["noise"]["at"] = "step"
    if kind == "example":
        document["training"].pop("global_update", None)
    return document


def random_schedules(rng: Random, edges: int, steps: int) -> Document:
    """Periods of single edges; some broadcast at the global step too."""
    periods = [rng.choice([n for n in (1, 2, 3, 4) if n <= steps]) for _ in range(edges)]
    return {"edge_every": periods, "edge_at_global": rng.random() < 0.5}


def random_trace(rng: Random, sizes: list[int], rounds: int, least: list[int]) -> list[list[int]]:
    """Moves that leave every edge with its ``least`` devices."""
    place = [edge for edge, size in enumerate(sizes) for _ in range(size)]
    trace = []
    for number in range(2, rounds + 1):
        for device in range(len(place)):
            if rng.random() < 0.3 and place.count(place[device]) > least[place[device]]:
                place[device] = rng.randrange(len(sizes))
                trace.append([number, device, place[device]])
    return trace


def places_of(document: Document) -> list[list[int]]:
    """The edge of every device in every round, from what the spec says."""
    sizes, rounds = document["topology"]["devices_per_edge"], document["training"]["rounds"]
    place = [edge for edge, size in enumerate(sizes) for _ in range(size)]
    found = []
    for number in range(1, rounds + 1):
        for first, device, edge in document["topology"]["moves"]["trace"]:
            if first == number:
                place[device] = edge
        found.append(list(place))
    return found


def trusted_in(document: Document, number: int) -> list[int]:
    """The edges that are trusted in a round, from 1."""
    changes = document["trust"]["from"]
    return changes[max(first for first in changes if first <= number)]


class RoundByRound:
    """Every round as a spec of its own, with the devices numbered edge by edge."""

    def __init__(self, document: Document) -> None:
        self.places = places_of(document)
        edges = document["topology"]["edges"]
        self.rounds = []
        for number, place in enumerate(self.places, start=1):
            order = sorted(range(len(place)), key=lambda device: (place[device], device))
            one = {
                **document,
                "topology": {
                    "kind": "tree",
                    "edges": edges,
                    "devices_per_edge": [place.count(edge) for edge in range(edges)],
                },
                "trust": {
                    "cloud": document["trust"]["cloud"], "trusted_edges": trusted_in(document, number),
                },
                "training": {**document["training"], "rounds": 1},
            }  # fmt: skip
            number_of = {device: position for position, device in enumerate(order)}
            self.rounds.append((TreeAsMessages(resolve(load_spec(one)).releases), number_of))

    def records(self, unit: int, coalition: tuple[Party, ...]) -> list[RecordReleases]:
        """How a record of ``unit`` is charged in each round, from the flow of the general form."""
        found: list[RecordReleases] = []
        for compiled, number_of in self.rounds:
            facts, me = compiled.facts, number_of[unit]
            leaf = facts.leaf_of(me)
            batches = facts.batches.at(leaf)
            if batches.step_multiplier:
                found.append(noised_steps(batches.step_multiplier, sum(map(len, batches.moves))))
                continue
            for draw in compiled.flow(me, _renumbered(coalition, number_of)).draws:
                found += releases_by_batches(draw, batches, one_draw=bool(facts.steps[-1].resends[leaf]))
        return found

    def exposures(self, unit: int, coalition: tuple[Party, ...]) -> tuple[Exposure, Exposure]:
        """Flow and cut over all rounds, from the general form of each."""
        flows, cuts = [], []
        for compiled, number_of in self.rounds:
            there = _renumbered(coalition, number_of)
            flows += compiled.flow(number_of[unit], there).draws
            cuts += compiled.cut(number_of[unit], there).draws
        return Exposure("flow", tuple(flows)), Exposure("cut", tuple(cuts))


def _renumbered(coalition: tuple[Party, ...], number_of: dict[int, int]) -> list[Party]:
    return [Party("device", 0, number_of[p.index]) if p.kind == "device" else p for p in coalition]


def random_coalition(rng: Random, document: Document) -> tuple[int, tuple[Party, ...]]:
    """A unit, and one to three parties without it."""
    devices = sum(document["topology"]["devices_per_edge"])
    unit = rng.randrange(devices)
    parties = [Party("public"), Party("node", 0, 0)]
    parties += [Party("node", 1, edge) for edge in range(document["topology"]["edges"])]
    parties += [Party("device", 0, device) for device in range(devices) if device != unit]
    return unit, tuple(rng.sample(parties, k=min(len(parties), rng.choice((1, 1, 1, 2, 3)))))


def nobody_moves(tree, trace, trust, **given):
    """Everybody is charged under the edge of the first round."""
    return trees_over_time(tree, (), trust, **given)


def last_trust_throughout(tree, trace, trust, **given):
    """The trust of the last rounds is taken to hold in all of them."""
    found = trees_over_time(tree, trace, trust, **given)
    last = found[-1][1].tiers[-1].trusted
    return tuple(
        (first, replace(one, tiers=(*one.tiers[:-1], replace(one.tiers[-1], trusted=last))))
        for first, one in found
    )
