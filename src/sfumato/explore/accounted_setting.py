"""Everything that the page shows of one setting: guarantees, network, matrix, noise and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from sfumato.accounting import PrivacyReport, account, pair_guarantee
from sfumato.errors import SpecError
from sfumato.explore.edited_spec import EditedSpec
from sfumato.network.tree import Tree
from sfumato.planning.costs import TrainingCost, training_cost
from sfumato.privacy.guarantee import Guarantee
from sfumato.report.results.matrix import Matrix, build_matrix
from sfumato.report.results.network import GroupNetwork, Network, owners_in_words, read_network
from sfumato.report.results.observer_labels import ObserverLabels, labels_for
from sfumato.spec.document import Spec

_KEPT = 16  # settings whose figures are kept


class NoiseRow(NamedTuple):
    """The noise of parties that add equally much.

    Attributes:
        parties: who, in words.
        where: at which aggregations, in words.
        multiplier: standard deviation over sensitivity.
    """

    parties: str
    where: str
    multiplier: float


@dataclass(frozen=True, eq=False)
class AccountedSetting:
    """The figures of one setting, computed without training.

    Attributes:
        spec: with the changes of the setting.
        report: of `sfumato.account`.
        network: with trust and noise, for drawings and names.
    """

    spec: Spec
    report: PrivacyReport
    network: Network

    @cached_property
    def labels(self) -> ObserverLabels:
        """Names of classes of units and of observers in the network."""
        return labels_for(self.network)

    @cached_property
    def matrix(self) -> Matrix:
        """The matrix of ε of classes of units towards observers, as in reports; empty without guarantees."""
        return build_matrix(self.report.guarantees, self.labels)

    @cached_property
    def noise(self) -> list[NoiseRow]:
        """Who adds how much noise: a list with one row for parties that add equally much.

        [] if nobody adds any.
        """
        if step := self.network.step_noise:
            return [NoiseRow("every device", "every local step", step)]
        found: dict[tuple[float, ...], list[str]] = {}
        for owner, multipliers in self.network.noise.items():
            found.setdefault(multipliers, []).append(self.network.titled(owner))
        rows = []
        for multipliers, owners in found.items():
            alike = len(set(multipliers)) == 1
            names = ["every aggregation"] if alike else _level_names(self.network.shape, len(multipliers))
            for where, multiplier in zip(names, multipliers, strict=not alike):
                if multiplier > 0:
                    rows.append(NoiseRow(owners_in_words(owners, 6), where, multiplier))
        return rows

    @cached_property
    def cost(self) -> TrainingCost | str:
        """The expected cost of all rounds, or a sentence on why it is not known before a run.

        In bytes, J and s, as of `training_cost`.
        """
        try:
            return training_cost(self.report.plan)
        except SpecError as error:
            return f"{error.place}: {error.allowed}"

    def pair(self, unit: str, observer: str) -> Guarantee:
        """The guarantee that ``account --unit UNIT --observer OBSERVER`` gives.

        Raises:
            SpecError: no such party, or a coalition that contains the unit.
        """
        return pair_guarantee(self.report.plan, unit, observer, delta=self.report.delta)

    @property
    def smallest_place(self) -> int:
        """The number of devices of the smallest edge, group or star; 1 where the network is not known."""
        shape = self.network.shape
        if isinstance(shape, str):
            return 1
        return int((shape.groups.sizes if isinstance(shape, GroupNetwork) else shape.devices).min())

    @property
    def default_unit(self) -> str:
        """The unit (``device:N``, ``record:N`` or ``person:N``) with the largest finite ε towards the cloud.

        That of the first guarantee where there is no such ε; ``device:0`` without any guarantee.
        """
        rows = self.report.guarantees
        cloud = [row for row in rows if row.observer == "cloud" and row.epsilon < math.inf]
        chosen = max(cloud, key=lambda row: row.epsilon) if cloud else next(iter(rows), None)
        return "device:0" if chosen is None else chosen.unit


def account_setting(setting: EditedSpec) -> AccountedSetting:
    """The account (ε, costs, noise) of ``setting``; those of recent settings are cached.

    Raises:
        SpecError: the spec is wrong.
    """
    return _account(setting.to_json())


@lru_cache(maxsize=_KEPT)
def _account(setting: str) -> AccountedSetting:
    """The account of a setting, given as the JSON of an `EditedSpec`; cached."""
    spec = EditedSpec.from_json(setting).spec()
    report = account(spec)
    resolved: Mapping[str, Any] = report.plan.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return AccountedSetting(spec, report, read_network(resolved))


def _level_names(shape: Tree | GroupNetwork | str, count: int) -> list[str]:
    """Names of the kinds of aggregations at which a source adds noise, ``count`` of them, the top first.

    By tiers where ``shape``, that of the network, is a tree with as many tiers; otherwise "level 0" and so
    on.
    """
    if isinstance(shape, Tree) and count == shape.depth:
        return ["global aggregations", *(f"{tier.name} aggregations" for tier in shape.tiers[1:])]
    return [f"level {level}" for level in range(count)]
