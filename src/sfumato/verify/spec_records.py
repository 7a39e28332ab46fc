"""Draws of records in ledger.json: rates, sizes of batches, and how far one record moves a message.

Devices draw persons in the same way where these are the unit: each brings one row, as a record does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.examples_held import examples_held, pool_of_examples
from sfumato.verify.read import Array, Json, shortened
from sfumato.verify.spec_settings import clip_kind, keeps_control_variates, unlike_spec
from sfumato.verify.spec_tree import aggregations_of_round, reach_of_steps


def record_rate_problems(spec: Json, rates: Array) -> Iterator[str]:
    """Yield a line where ``rates`` are not batch size / number of examples of each device, at most 1.

    Where the spec does not determine the examples of each device, only their total is checked.
    """
    sizes, _ = examples_held(spec)
    batch = read.count(spec["training"]["batch_size"])
    if sizes is not None:
        wanted = np.where(sizes > 0, np.minimum(1.0, batch / np.maximum(sizes, 1)), 0.0)
        yield from unlike_spec("batches.rate_per_device", rates, wanted)
        return
    pool = pool_of_examples(spec["data"], len(rates))
    drawn = rates[(rates > 0) & (rates < 1)]
    if pool is not None and (batch / drawn).sum() > pool[0] * (1 + ROUNDING):
        yield f"ledger.json: batches.rate_per_device: of more examples than the {pool[0]:,} of the data set"


def person_problems(spec: Json) -> Iterator[str]:
    """Yield a line where spec.yaml may divide the rows of a person, though persons are the privacy unit.

    Devices draw persons, of whom each brings one row to a local step; so all rows of a person must be at one
    device, and the number of persons must not be taken for that of rows.
    """
    data, of_persons = spec["data"], spec["privacy"]["unit"] == "person"
    column = data.get("person_column")
    if of_persons != (column is not None):
        yield f"spec.yaml: privacy.unit: {spec['privacy']['unit']}, with data.person_column: {column}"
    if not of_persons:
        return
    if pool_of_examples(data, 1) is not None:
        yield f"spec.yaml: data.source: {data['source']} names no persons"
    rule = data.get("partition") or {"kind": "iid"}
    for one in (rule["edge"], rule["device"]) if rule["kind"] == "two-level" else (rule,):
        if one["kind"] not in ("iid", "natural"):
            yield f"spec.yaml: data.partition.kind: {one['kind']} may part the rows of one person"


def batch_problems(spec: Json, ledger: Json) -> Iterator[str]:
    """Yield a line where ``batches`` of ``ledger.json`` understates how far a record moves a message.

    ``batches`` states, for every local step, the share of the message's bound that a record moves which is in
    the batch of that step and in none before it.
    """
    training, clip = spec["training"], clip_kind(spec)
    batches, momentum = ledger["batches"], training.get("momentum", 0.0)
    rates, tree = read.figures(batches["rate_per_device"]), ledger["kind"] == "tree"
    devices = read.counts(ledger["devices_per_leaf"]).sum() if tree else read.count(ledger["devices"])
    if len(rates) != devices or (rates < 0).any() or (rates > 1).any():
        yield "ledger.json: batches.rate_per_device: must be one probability for each device"
        return
    yield from record_rate_problems(spec, rates)
    if (spec.get("compression") or {}).get("error_feedback") and not read.figure(batches["noise_at_steps"]):
        yield "ledger.json: batches: devices remember (error feedback), so a record counts as drawn"
    if keeps_control_variates(spec):
        yield "ledger.json: batches: devices remember (control variates), so a record counts as drawn"
    if tree:
        held = np.stack([one.new for one in aggregations_of_round(training, ledger)], axis=1)
        pieces = [own[own > 0].tolist() for own in held]
    else:
        by_interval = ledger["kind"] in ("dp-ogl+", "dp-ogl-local")
        merged = read.count(ledger["merge_every"]) if by_interval else 1
        pieces = [[(training.get("local_steps") or 1) * merged]]
    most = most_records_of_a_device(spec, rates)
    if batches.get("answering") is not None:
        max_batch, excess = read.count(batches["answering"]), read.figure(batches["beyond"])
        yield from _max_batch_problems(training["batch_size"], max_batch, excess, most)
        most = max_batch
    bits = (spec.get("compression") or {}).get("bits")
    if bits is not None and not read.figure(batches["noise_at_steps"]) and not batches.get("rounded"):
        yield "ledger.json: batches: rounded: devices round their messages (compression.bits)"
    for leaf, steps in enumerate(pieces):
        for gradients, listed in enumerate(moved_shares(batches, leaf), start=1):
            name = f"batches.moved_share_by_first_step{'_replaced' if gradients == 2 else ''}"
            yield from unlike_spec(f"{name}: steps", [len(one) for one in listed], steps)
            for own, count in zip(listed, steps, strict=False):
                gain = np.array([reach_of_steps(left, momentum) for left in range(count, -1, -1)])
                wanted = gain[:-1] / gain[0] if clip == "step" else np.ones(count)
                if clip == "example":
                    wanted = (gradients * -np.diff(gain) + 2 * most * gain[1:]) / (2 * gain[0])
                if len(own) == count and (own < wanted * (1 - ROUNDING)).any():
                    stated = shortened(np.array(own))
                    yield f"ledger.json: {name}: {stated}; spec.yaml gives {shortened(wanted)}"


def most_records_of_a_device(spec: Json, rates: Array) -> int:
    """The largest number of records of a device: by the partition, else batch_size / smallest rate below 1.

    1 where every rate is 0 or 1. ``rates``: probability that a record is in a batch, of each device.
    """
    sizes, _ = examples_held(spec)
    if sizes is not None:
        return int(sizes.max())
    batch = read.count(spec["training"]["batch_size"])
    least = [q for q in rates if 0 < q < 1]
    return round(batch / min(least)) if least else 1


def _max_batch_problems(batch_size: int, max_batch: int, excess: float, most: int) -> Iterator[str]:
    """Yield a line where the probability of more than ``max_batch`` examples in a step is stated too small.

    Args:
        batch_size: expected examples in a step.
        max_batch: the stated limit.
        excess: the stated probability; must not be below Chernoff's bound.
        most: records of the largest device; a limit of as many needs no probability.
    """
    if max_batch >= most:
        return
    above = max_batch > batch_size
    log = max_batch - batch_size + max_batch * math.log(batch_size / max_batch) if above else 0.0
    if not 0 < excess <= 1 or log > math.log(excess) * (1 - ROUNDING):
        stated = f"more with probability {excess:.3g} stated; the bound on it is {math.exp(log):.3g}"
        yield f"ledger.json: batches.answering: {max_batch} of up to {most} records are in a step, {stated}"


def moved_shares(batches: Json, leaf: int) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
    """How far one record moves every message of a leaf's devices in a round, as shares of its bound.

    Args:
        batches: of ``ledger.json``.
        leaf: index of the leaf.

    Returns:
        Two lists ``[messages][local steps]``, where the record is zeroed out and where it is replaced. An
        entry is the share where the record is in the batch of that local step and in none before it.
    """
    found = []
    for name in ("moved_share_by_first_step", "moved_share_by_first_step_replaced"):
        listed = batches[f"{name}_per_leaf"][leaf] if f"{name}_per_leaf" in batches else batches[name]
        found.append([tuple(read.figure(move) for move in one) for one in listed])
    return found[0], found[1]
