"""Facts of overlapping groups that spec.yaml determines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sfumato.verify import read
from sfumato.verify.parties import kind_and_index
from sfumato.verify.read import Json, UnknownKindError, shortened
from sfumato.verify.spec_settings import (
    clip_kind,
    groups_in_spec,
    may_drop_out,
    sort_members,
    survival_threshold,
    unlike_spec,
    worker_count,
)


def group_spec_problems(spec: Json, ledger: Json) -> Iterator[str]:
    """Yield a line where a fact of overlapping groups in ``ledger.json`` differs from spec.yaml.

    ``spec`` and ``ledger``: contents of the two files.
    """
    topology, training, clip = spec["topology"], spec["training"], spec["privacy"].get("clip") or {}
    listed, part, bare = groups_in_spec(topology), training["participation"], ledger["kind"] == "ms-fedavg"
    groups = len(listed)
    yield from unlike_spec("kind", ledger["kind"], spec["protocol"])
    yield from unlike_spec("devices", read.count(ledger["devices"]), worker_count(topology))
    changes = topology.get("eras") or ()
    eras = [(1, listed), *((read.count(era["from_round"]), sort_members(era["groups"])) for era in changes)]
    held = [(read.count(era["first_epoch"]), sort_members(era["groups"])) for era in ledger["eras"]]
    yield from unlike_spec("eras begin with rounds", [at for at, _ in held], [at for at, _ in eras])
    for (first, mine), (_, theirs) in zip(held, eras, strict=False):
        yield from unlike_spec(f"groups from round {first} are those of the topology", mine == theirs, True)
    yield from unlike_spec("merge_every", read.count(ledger["merge_every"]), training.get("merge_every") or 1)
    rates = part.get("rates") or [part.get("rate", 1.0)] * groups
    yield from unlike_spec("poisson_rate_per_group", read.figures(ledger["poisson_rate_per_group"]), rates)
    norms = clip.get("norms") or [clip.get("norm", 1.0)] * groups
    norms = [1.0] * groups if bare or clip_kind(spec) == "example" else norms
    yield from unlike_spec("clip_per_group", read.figures(ledger["clip_per_group"]), norms)
    yield from _session_problems(spec, ledger, [found for _, found in eras], rates)
    yield from _group_noise_problems(spec, ledger, groups)


def _session_problems(
    spec: Json, ledger: Json, structures: Sequence[Sequence[Sequence[int]]], rates: Sequence[float]
) -> Iterator[str]:
    """Yield a line where numbers drawn, fewest messages or unmasking shares differ from spec.yaml.

    Args:
        spec: contents of spec.yaml.
        ledger: contents of ledger.json.
        structures: of every era, the workers of every group.
        rates: rate of the draw of every group.
    """
    part = spec["training"]["participation"]
    transport = (spec.get("transport") or {}).get("devices_to_master", "plain")
    yield from unlike_spec("transport", ledger["transport"], transport)
    fewest = [min(map(len, structure)) for structure in zip(*structures, strict=True)]
    counts = part["count"] if part["kind"] == "fixed" else []
    cohort = read.counts(ledger.get("cohort_per_group") or ()).tolist()
    wanted = counts if isinstance(counts, list) else [counts] * len(fewest)
    yield from unlike_spec("cohort_per_group", cohort, wanted)
    if any(count > least for count, least in zip(cohort, fewest, strict=False)):
        yield f"cohort_per_group: {cohort} of groups of {fewest}"
    lost = [
        [_least_survivors_of_group(spec, len(group), place, rates) for place, group in enumerate(structure)]
        for structure in structures
    ]
    held_least = [read.counts(row).tolist() for row in ledger.get("least_survivors_per_group") or ()]
    yield from unlike_spec("least_survivors_per_group", held_least, lost if may_drop_out(spec) else [])
    sizes = zip(cohort or fewest, rates, strict=False)
    shares = [_colluders_that_unmask(spec, parties, rate) for parties, rate in sizes]
    shares = shares if transport == "secure-aggregation" else []
    yield from unlike_spec("shares_that_unmask", read.counts(ledger["shares_that_unmask"]), shares)


def _group_noise_problems(spec: Json, ledger: Json, groups: int) -> Iterator[str]:
    """Yield a line where a group's noise multiplier, or who adds its noise, differs from spec.yaml.

    ``groups``: how many there are.
    """
    sources = spec["privacy"]["noise"].get("sources") or () if ledger["kind"] != "ms-fedavg" else ()
    wanted, by = np.zeros(groups), ["master" if one else "devices" for one in _trusted_masters(spec, groups)]
    owners = [(owner, source["multipliers"][0]) for source in sources for owner in source["owners"]]
    for owner, multiplier in owners:
        wanted[kind_and_index(owner.removesuffix("/devices"))[1]] = multiplier
    held = read.figures(ledger["noise_multiplier_per_group"])
    yield from unlike_spec("noise_multiplier_per_group", held, wanted)
    wanted_by = by[0] if len(set(by)) == 1 else by
    if ledger["noise_added_by"] != wanted_by:
        held_by = shortened(ledger["noise_added_by"])
        yield f"ledger.json: noise_added_by: {held_by}; spec.yaml gives {shortened(wanted_by)}"
    for owner, _ in owners:
        group = kind_and_index(owner.removesuffix("/devices"))[1]
        if owner.endswith("/devices") != (by[group] == "devices"):
            yield f"spec.yaml: privacy.noise: {owner}: trust says that the noise is by {by[group]}"


def _trusted_masters(spec: Json, groups: int) -> list[bool]:
    """Whether each of so many masters, one a group, is trusted; all are where the spec names none.

    Raises:
        UnknownKindError: the spec states a share of trusted masters.
    """
    trust = spec.get("trust") or {}
    listed, named = trust.get("trusted_aggregators"), trust.get("trusted") or []
    if listed is None and not named:
        return [True] * groups
    if listed is not None and not isinstance(listed, list):
        raise UnknownKindError("spec.yaml: trust: this checker has no rule for a share of trusted masters")
    trusted = {*map(read.count, listed or ()), *(kind_and_index(name)[1] for name in named)}
    return [group in trusted for group in range(groups)]


def _colluders_that_unmask(spec: Json, parties: int, rate: float) -> int:
    """How many workers of a group hold, with its master, enough key shares to remove the masks of a session.

    Where workers are drawn (``rate`` < 1), that of the smallest session that can be unmasked without the
    unit; ``parties``, the number of workers, where no session can.
    """
    if rate == 1:
        return survival_threshold(spec, parties)
    # by default a session of four is the smallest, and its number is stated for a smaller group too
    sizes = range(2, max(parties, 4) + 1)
    return next((size - 1 for size in sizes if survival_threshold(spec, size) <= size - 1), parties)


def _least_survivors_of_group(spec: Json, size: int, group: int, rates: Sequence[float]) -> int:
    """Fewest messages that a released sum of a group of ``size`` workers holds.

    0 without secure aggregation and under Poisson draws, where a sum may hold none.

    Args:
        spec: contents of spec.yaml.
        size: number of workers.
        group: its number.
        rates: of the groups, with which they draw a worker.
    """
    masked = (spec.get("transport") or {}).get("devices_to_master") == "secure-aggregation"
    part = spec["training"]["participation"]
    if not masked or read.figure(rates[group]) < 1:
        return 0
    if part["kind"] == "fixed":
        size = read.count(part["count"][group] if isinstance(part["count"], list) else part["count"])
    return survival_threshold(spec, size)
