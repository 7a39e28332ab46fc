"""Whom the parties trust with raw updates, and the changes of a spec that trust or distrust an aggregator."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

import numpy as np

from sfumato.errors import SpecError
from sfumato.explore.accounted_setting import AccountedSetting
from sfumato.explore.edited_spec import EditedSpec
from sfumato.network.tree import Tree, trust_as_written
from sfumato.report.results.network import GroupNetwork, parties_in_words
from sfumato.schedule.resolve.protocol_defaults import WITHOUT_TRUST
from sfumato.spec.document import Spec
from sfumato.spec.topology import Site, TreeTopology, Trust

MOST_NAMED = 60


@dataclass(frozen=True)
class Aggregator:
    """A party that may be trusted.

    Attributes:
        name: as in observers, e.g. ``edge:3``.
        label: its name in the topology where it has one, else its name in words.
        trusted: with raw updates.
    """

    name: str
    label: str
    trusted: bool


def aggregators(accounted: AccountedSetting) -> tuple[Aggregator, ...]:
    """A tuple of all aggregators of the network, with their titles and trust, from the top down.

    Empty where the network is not known.
    """
    shape = accounted.network.shape
    if isinstance(shape, Tree):
        return tuple(
            Aggregator(
                name := shape.node_name(depth, index),
                _labelled(name, tier.labels[index] if tier.labels else name),
                bool(tier.trusted[index]),
            )
            for depth, tier in enumerate(shape.tiers)
            for index in range(tier.size)
        )
    if isinstance(shape, GroupNetwork):
        return tuple(
            Aggregator(name := f"master:{group}", _labelled(name, shape.groups.titled(name)), bool(trusted))
            for group, trusted in enumerate(shape.trusted)
        )
    return ()


def _labelled(name: str, title: str) -> str:
    """A party's title; its kind and number in words where it has no other, such as ``edge 3``."""
    return parties_in_words(name) if title == name else title


def trusted_names(accounted: AccountedSetting) -> set[str]:
    """The names of the aggregators that are trusted, such as ``edge:3``.

    Empty where nobody is, or the network is not known.
    """
    return {one.name for one in aggregators(accounted) if one.trusted}


def why_trust_is_fixed(accounted: AccountedSetting) -> str:
    """The reason why trust cannot be changed here, as a sentence; "" where it can."""
    if accounted.spec.protocol in WITHOUT_TRUST:
        return f"Protocol {accounted.spec.protocol} trusts nobody: whom the spec trusts makes no difference."
    if accounted.spec.trust.from_ is not None:
        return "Trust changes over the rounds (trust.from): change it in the spec."
    if isinstance(accounted.network.shape, str):
        return accounted.network.shape
    if len(aggregators(accounted)) > MOST_NAMED:
        return f"There are more than {MOST_NAMED} aggregators: click them in the drawing, or change the spec."
    return ""


def with_trusted(setting: EditedSpec, accounted: AccountedSetting, names: Set[str]) -> EditedSpec:
    """``setting`` in which exactly the aggregators called ``names`` are trusted.

    Args:
        setting: to be changed.
        accounted: of ``setting``.
        names: of aggregators.

    Raises:
        SpecError: trust cannot be changed, or there is no such aggregator.
    """
    if accounted.spec.protocol in WITHOUT_TRUST or accounted.spec.trust.from_ is not None:
        raise SpecError("trust", None, why_trust_is_fixed(accounted))
    unknown = sorted(set(names) - {one.name for one in aggregators(accounted)})
    if unknown:
        raise SpecError("trust", unknown[0], "is no aggregator of this network")
    shape = accounted.network.shape
    if isinstance(shape, Tree):
        return _in_tree(setting, accounted.report.plan.spec, shape, names)
    masters = [group for group, one in enumerate(aggregators(accounted)) if one.name in names]
    return setting.with_change("trust", {"trusted_aggregators": masters})


def with_trust_toggled(setting: EditedSpec, accounted: AccountedSetting, name: str) -> EditedSpec:
    """``setting`` with the aggregator called ``name`` trusted if it was not, or distrusted if it was.

    Raises:
        SpecError: trust cannot be changed, or there is no such aggregator.
    """
    return with_trusted(setting, accounted, trusted_names(accounted) ^ {name})


def _in_tree(setting: EditedSpec, resolved: Spec, tree: Tree, names: Set[str]) -> EditedSpec:
    """The setting with a trust section for exactly the aggregators ``names`` of ``tree``.

    What sites of the topology say of trust is removed. ``resolved``: the setting's spec.
    """
    tiers = tuple(
        replace(tier, trusted=np.array([tree.node_name(depth, i) in names for i in range(tier.size)]))
        for depth, tier in enumerate(tree.tiers)
    )
    trust = trust_as_written(replace(tree, tiers=tiers), Trust())
    written = trust.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    changed, topology = setting.with_change("trust", written), resolved.topology
    if not isinstance(topology, TreeTopology) or topology.sites is None:
        return changed
    sites = tuple(_distrusted(site) for site in topology.sites)
    if sites == topology.sites:
        return changed
    without = topology.model_copy(update={"sites": sites})
    return changed.with_change("topology", without.model_dump(mode="json", by_alias=True, exclude_none=True))


def _distrusted(site: Site) -> Site:
    """A site, and all sites below it, without trust."""
    below = None if site.sites is None else tuple(map(_distrusted, site.sites))
    return site.model_copy(update={"trusted": False, "sites": below})
