"""HDP's claims (Table I and the lemma of Sec. IV-C), each beside the rigorous figure (docs/errata.md).

The paper converts the epsilon of one noiser's Gaussian to "privacy at the center" by dividing it by the
square root of the number of noisers. Table I is read as the text counts (D2): C4 is epsilon, C5 epsilon over
sqrt(alpha k + 1), C6 over sqrt(beta s + 1). Epsilon itself is the Renyi figure of the sampled Gaussian with
the old conversion, RDP + ln(1/delta)/(alpha - 1), which reproduces the 24.80 of its Table III.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from sfumato.claims import claimed_units, rigorous_bound
from sfumato.network.groups import FloatArray, IntArray
from sfumato.privacy.claim import Claim, claim_holds
from sfumato.privacy.observers import PairClass
from sfumato.rounding import number
from sfumato.schedule.tree import TreePlan
from sfumato.spec.privacy import NoiseByMultiplier

_LARGEST_ORDER = 512
_RULE = "Sec. V, rule of Case 3"
_ERRS_ON_THE_SAFE_SIDE = (
    "ε of a Gaussian shrinks faster than its noise grows, so the division by the root errs on the safe side "
    "(D7)"
)
"""At a fixed δ, ε/μ of a μ-GDP mechanism rises with μ: the derivative of δ at ε = cμ is
e^{cμ} (φ(x) - c Φ(-x)) with x = c + μ/2, above 0 since Φ(-x) < φ(x)/x and x > c."""
_OTHER_CASE = "the paper states this ε for Case 3 alone, and its rule is applied to the zones"


@dataclass(frozen=True)
class Noisers:
    """Who adds noise in a round, as Table I counts them.

    Attributes:
        clients: online clients that add noise; the expectation where they are drawn.
        zones: zones whose supernode adds noise.
        cloud: whether the aggregator does.
        online: clients online, k; the expectation where they are drawn.
    """

    clients: float
    zones: int
    cloud: bool
    online: float

    @property
    def total(self) -> float:
        """Number of noisers, by whose root Table I divides ε: beta s m + alpha s + 1 in general.

        Expected where clients are drawn; 0 if nobody adds noise.
        """
        return self.clients + self.zones + self.cloud

    @property
    def case(self) -> str:
        """The name of the case of Sec. V, C1 to C7, by who adds noise.

        Raises:
            KeyError: nobody adds noise.
        """
        where = (self.cloud, self.zones > 0, self.clients > 0)
        cases = {
            (False, False, True): "C1",
            (False, True, False): "C2",
            (False, True, True): "C3",
            (True, False, False): "C4",
            (True, False, True): "C5",
            (True, True, False): "C6",
            (True, True, True): "C7",
        }
        return cases[where]


def noisers_of(plan: TreePlan) -> Noisers:
    """How many clients, zones and clouds add noise at the global aggregation, as Table I counts them.

    The cloud counts as one. Of clients that are drawn at random it is the expected number.
    """
    facts, classes = plan.releases.steps[-1], plan.releases.classes
    loud = np.bincount(classes.leaf, weights=(classes.variance(facts.device_std) > 0) * classes.count)
    share = plan.participants.drawn / plan.tree.devices
    return Noisers(
        clients=float(loud @ share),
        zones=int(np.count_nonzero(facts.node_std[-1])),
        cloud=bool(facts.node_std[0][0] > 0),
        online=float(plan.participants.drawn.sum()),
    )


@cache
def epsilon_by_old_conversion(multiplier: float, rate: float, rounds: int, delta: float) -> float:
    """ε at ``delta`` by the paper's accountant: min over orders of ``RDP + ln(1/delta) / (order - 1)``.

    Args:
        multiplier: noise multiplier z, above 0.
        rate: q, of Poisson sampling, 0 to 1.
        rounds: T.
        delta: in (0, 1).

    Returns:
        ε at the best order of 2..512, with the sampled Gaussian's exact divergences at whole orders (Mironov,
        Talwar and Zhang 2019, Sec. 3.3).
    """
    orders = np.arange(2, _LARGEST_ORDER + 1)
    found = rounds * _sampled_gaussian_rdp(orders, rate, multiplier)
    return float((found + math.log(1 / delta) / (orders - 1)).min())


def _sampled_gaussian_rdp(orders: IntArray, rate: float, multiplier: float) -> FloatArray:
    """Rényi divergences of the sampled Gaussian with multiplier z at whole ``orders`` above 1, ``[orders]``.

    ln sum_i C(order, i) (1-q)^(order-i) q^i exp((i^2 - i) / (2 z^2)), over order - 1. ``rate``: q, of Poisson
    sampling.
    """
    from scipy.special import gammaln, logsumexp, xlog1py, xlogy

    order, i = orders[:, None], np.arange(orders.max() + 1)
    others = np.maximum(order - i, 0)
    binomial = gammaln(order + 1) - gammaln(i + 1) - gammaln(others + 1)
    terms = binomial + xlog1py(others, -rate) + xlogy(i, rate) + (i * i - i) / (2 * multiplier**2)
    return np.asarray(logsumexp(np.where(i <= order, terms, -np.inf), axis=1) / (orders - 1))


def hdp_claims(plan: TreePlan, delta: float) -> tuple[Claim, ...]:
    """Table I's claims for every class of units towards the cloud and the public, beside the ε at ``delta``.

    Case 3 promises epsilon over sqrt(m) at a supernode whose m clients add the noise. Where clients are
    elected supernodes, the paper lets clients see the noised update, so its ε is claimed towards peers, too.
    Table I states what is viewed at the central aggregator; of the public it says nothing (`Claim.stated`).

    () where noise is not one multiplier placed by zone, which is what the table is about.
    """
    stated = plan.spec.privacy.requested_noise
    if not isinstance(stated, NoiseByMultiplier) or stated.placement is None:
        return ()
    noisers = noisers_of(plan)
    rounds = plan.releases.rounds
    each = epsilon_by_old_conversion(stated.multiplier, plan.participants.rate, rounds, delta)
    found = []
    for pair in plan.releases.pair_classes():
        count = _claimed_noisers(plan, pair, noisers)
        if not count:
            continue
        what = _place_of_claim(pair, noisers)
        claimed = each / math.sqrt(count)
        aside = f"; {_OTHER_CASE} of {noisers.case}" if what == _RULE else ""
        for unit in claimed_units(plan):
            rigorous = rigorous_bound(plan, pair, unit, delta).epsilon
            found.append(
                Claim(
                    f"HDP {what}, {noisers.case}: ε" + (f"/√{count:g}" if count != 1 else ""),
                    f"{unit}:{pair.unit}",
                    plan.releases.party_name(pair.observer),
                    claimed,
                    rigorous,
                    f"{_explain_claim(plan, pair, claimed, rigorous)}{aside}; {number(each)} is ε by the "
                    "paper's accountant as it is read here (Rényi divergences of whole orders, the old "
                    "conversion), for one party that adds noise with this spec's multiplier and rounds; the "
                    "paper divides it by the root of the number of such parties.",
                    stated=what != _RULE and pair.relation.kind != "public",
                )
            )
    return tuple(found)


def _place_of_claim(pair: PairClass, noisers: Noisers) -> str:
    """The place in the paper that speaks of this observer, or whose rule is applied to it.

    ``Table I``, ``Sec. V, Case 3``, or `_RULE` where another case's edges are read by that rule.
    """
    if pair.observer.kind != "node" or not pair.observer.tier:
        return "Table I"
    return "Sec. V, Case 3" if noisers.case == "C3" else _RULE


def _claimed_noisers(plan: TreePlan, pair: PairClass, noisers: Noisers) -> float:
    """The number of noisers by whose root the paper divides towards this observer; 0 if it claims nothing."""
    if pair.relation.kind in ("cloud", "public"):
        return noisers.total
    if pair.relation.kind == "peer":
        return noisers.total if plan.releases.elections else 0.0
    facts, classes, leaf = plan.releases.steps[-1], plan.releases.classes, plan.tree.leaf_of(pair.unit)
    own = pair.relation.kind == "own-edge"
    all_noisy = all(classes.variance(facts.device_std)[row] > 0 for row in classes.of_leaf(leaf))
    return float(plan.participants.drawn[leaf]) if own and all_noisy else 0.0


def _explain_that_it_holds(plan: TreePlan, pair: PairClass) -> str:
    """Clauses on the noise that this observer meets, where the claim holds."""
    if pair.relation.kind == "public":
        return (
            "this observer meets only the sum of all noise; the noise of whoever is not honest is lost (D1); "
            f"{_ERRS_ON_THE_SAFE_SIDE}"
        )
    if pair.relation.kind != "own-edge":
        return (
            f"{_what_others_meet(plan, pair)}, at most the noise that the paper counts; yet "
            f"{_ERRS_ON_THE_SAFE_SIDE}"
        )
    edge, drawn = plan.tree.tiers[-1].name, plan.participants.drawn[plan.tree.leaf_of(pair.unit)]
    there = "" if plan.participants.kind == "all" else " that are there"
    return (
        f"the {edge} meets only the sum of its own zone, with the noise of the zone's {number(float(drawn))} "
        f"devices{there}; the noise of those that are not honest is lost (D1); "
        f"{_ERRS_ON_THE_SAFE_SIDE}"
    )


def _what_others_meet(plan: TreePlan, pair: PairClass) -> str:
    """A clause on what the cloud, or a device that is elected supernode, receives, and on the noise in it."""
    edge = plan.tree.tiers[-1].name
    if pair.relation.kind == "peer":
        return (
            f"a device that is elected supernode meets the sum of its {edge}'s devices before any noise of "
            "the supernode (D6)"
        )
    if plan.releases.hop(0) != "plain":
        return "the cloud meets the sum before its own noise, which protects nobody from it (D1)"
    below = plan.tree.tiers[1].name if plan.tree.depth > 1 else "device"
    return (
        f"the cloud meets every {below}'s message before the sum, with no noise but that of the {below}"
        f"{' and of its devices' if plan.tree.depth > 1 else ''} (D1, D3)"
    )


def _explain_claim(plan: TreePlan, pair: PairClass, claimed: float, rigorous: float) -> str:
    """Clauses on why the claim of ε ``claimed`` holds, or which steps of it do not; ``rigorous``: our ε."""
    if claim_holds(claimed, rigorous):
        return _explain_that_it_holds(plan, pair)
    reasons, edge = [], plan.tree.tiers[-1].name
    if pair.relation.kind in ("cloud", "peer"):
        reasons.append(_what_others_meet(plan, pair))
    elif pair.relation.kind != "public":
        reasons.append(
            f"without secure aggregation the {edge} meets every device's message by itself, with no noise "
            "but the device's own (D3)"
            if plan.releases.hop(plan.tree.depth - 1) == "plain"
            else f"the {edge} meets the sum of the devices that are there, and no other noise (D1)"
        )
    if plan.participants.kind != "all":
        reasons.append("the cloud knows who is online, so sampling amplifies nothing towards it")
    return "; ".join(reasons or ["this observer meets less noise than the paper counts (D1)"])
