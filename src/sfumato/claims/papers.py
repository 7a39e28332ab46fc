"""The four papers, their places and their errors that sentences name, in a few words for who has no copy.

A sentence names a place as ``Prop. 3.1``, and an error by its label in docs/errata.md, as ``H1``. Reports and
statements list what they name with these words.
"""

from __future__ import annotations

import re

PAPERS = {
    "H2FDP": "Lin and Brinton, Differentially Private Hierarchical Federated Learning (MobiHoc 2024)",
    "HDP": "Chandrasekaran et al., Hierarchical Federated Learning with Privacy (2022)",
    "DP-OGL": "Kiani, Boenisch and Draper, Controlled Privacy Leakage Propagation Throughout Overlapping "
    "Grouped Learning (2024)",
    "PFELS": "Zhang et al., Communication and Energy Efficient Wireless Federated Learning with Intrinsic "
    "Privacy (2023)",
}

PLACES = {
    "Prop. 3.1": "H2FDP, Proposition 3.1: with the noise of the paper's formula (15) the stated ε "
    "holds towards every party that is not trusted.",
    "Table I": "HDP, Table I: if each of k parties adds noise that by itself gives ε, the paper claims ε/√k "
    "towards the cloud.",
    "Sec. V, Case 3": "HDP, Section V, Case 3: a supernode, here an edge, receives the sum over "
    "the devices of its zone.",
    "Thm. 1 (17)": "DP-OGL, Theorem 1, equation (17): it counts every release of the groups that both "
    "workers are in, and of the target's other groups those that merging has passed on to the observer.",
    "Thm. 1 (18)": "DP-OGL, Theorem 1, equation (18): it counts the releases of DP-OGL+ that workers of "
    "other groups see, one a merge; of workers of the same group it says nothing.",
    "counts × RDP": "DP-OGL, Theorem 1 as in its figures: each release that it counts is charged the Rényi "
    "divergence of the sampled Gaussian.",
    "2π²α/σ²": "DP-OGL, Theorem 1 as in its text: each release that it counts is charged a Rényi divergence "
    "of 2π²α/σ² at order α, with noise σ and a worker's probability π of taking part.",
    "(26)": "DP-OGL, equation (26): in Example 2, with ε that of one release, worker 1 has 3ε towards "
    "worker 2 and 2εμ towards 3, worker 2 has 5ε towards both, worker 3 has 2εμ towards 1 and 3ε towards 2.",
    "(27)": "DP-OGL, equation (27): in Example 3 the ε of worker 1 towards worker 3, and of 3 towards 1, is "
    "that of one release.",
    "Thm. 2": "DP-OGL, Theorem 2: ε is smaller for groups in a string, by factors for the groups between.",
    "Thm. 3": "PFELS, Theorem 3: with the amplitude β of the signal bounded by (20), the paper says, each "
    "round has the stated ε.",
    "(20)": "PFELS, equation (20): the amplitude β of a round is at most ε divided by a constant C₂ of (21). "
    "The other limit is each device's power.",
    "Lemma 1": "PFELS, Lemma 1: sparsification at random leaves a share of an update on average.",
    "(46)": "DP-OGL, equation (46): groups between two workers weaken what arrives by this factor.",
    "(67)": "DP-OGL, equation (67): it is a step in the derivation of these factors.",
    "equation (15)": "DP-OGL, equation (15): it is the largest ε of a worker towards any other worker.",
}

_ALIASES = {
    "Sec. V, rule of Case 3": "Sec. V, Case 3",
    "Theorem 3": "Thm. 3",
    "(17)": "Thm. 1 (17)",
    "(18)": "Thm. 1 (18)",
}
"""Other ways in which sentences write a place."""

ERRORS = {
    "H1": "The paper reduces the noise by the rate at which records are drawn. A device takes part whatever "
    "is drawn, so for a whole device that rate hides nothing; and a message holds several draws of a record.",
    "H2": "The paper leaves open the constant c₁ of its condition ε < c₁qL, so the condition cannot be "
    "checked, and c₂, which scales its noise: the spec states c₂; the proof that the paper cites has 2. "
    "A reason that names H2 says above which c₁ the condition would be met, or which c₂ the noise has.",
    "H3": "The paper gives the whole ε to the releases of an edge, and again to those of the cloud. Who sees "
    "both is charged for both.",
    "H6": "The first term of Theorem 4.3 has γ in the numerator. By its proof γ is in the denominator.",
    "H7": "7,840 is the number of weights of a linear model of 28 × 28 pixels and 10 classes, not of a "
    "network of 12 layers.",
    "H10": "By equation (15) the noise of an edge's aggregation grows with √K_g. The proof loses this factor "
    "in (74), so it is missing in B₂.",
    "H11": "The K_ℓ noises of a round are independent, so the expected square of their sum is the sum of "
    "their squares: K_ℓ² + 1 is enough where the theorem has K_ℓ³ + 1.",
    "D1": "Noise adds up towards an observer that receives nothing but the sum, while all who add it are "
    "honest. Who receives a part of the sum meets the noise of that part only.",
    "D3": "Without secure aggregation a supernode receives single messages of clients, and the cloud those "
    "of zones, each with the noise that was added on its own path only, however many others add some.",
    "D4": "The paper says that with secure aggregation the root goes, and ε/√k becomes ε/k. Secure "
    "aggregation hides all but the sum, for which ε/√k is meant; it adds no noise.",
    "D5": "If the noise in the published model has the same size, accuracy and the ε towards the public are "
    "the same, wherever it was added. The place changes only what supernodes and the cloud learn.",
    "D6": "A client that is elected receives the sum of its zone, without noise, in each of its terms.",
    "D7": "The calibration behind the division by the root needs ε below 1; above, ε shrinks "
    "faster than the noise grows.",
    "O1": "The paper's count leaves out the releases that the last merging epoch passes on.",
    "O2": "The paper counts releases that only the target itself passes on; they tell nothing new about it.",
    "O3": "The paper's formula for a release to drawn workers needs a small rate, much noise and a bounded "
    "order of the divergence. Elsewhere it is too large, or not safe.",
    "O4": "Inside an interval models have no noise, so the data of one worker change what the others send. "
    "The paper counts only what the worker itself sends.",
    "O6": "The paper's factors have slips; put right they are nearly 1, so that nothing is gained by them.",
    "O7": "The number of workers that an average is divided by must be public.",
    "P1": "The theorem's proof needs an ε far below the one that it is used with.",
    "P2": "The paper states ε for one round and does not compose the rounds.",
    "P3": "Drawing the participants hides nothing from whoever draws them or can tell who was drawn.",
    "P4": "With a fixed number drawn, another device is drawn in the place of the missing one: the sum "
    "changes by up to twice as much.",
    "P5": "The paper clips gradients. An update of several epochs with momentum can be longer than the "
    "paper's bound on it.",
    "P7": "The bound on a message's power holds on average over the draws of coordinates. In a single round "
    "a message may exceed it.",
}

_EQUATIONS = (
    r"\((?:17|18)\)(?= (?:rounds|adds|counts|cancel))",
    r"(?<=Theorem 1, )\((?:17|18)\)",
    r"(?<=Example 2, )\(26\)",
    r"(?<=Example 3, )\(27\)",
    r"\(20\)(?= (?:sets?|never sets|limits)\b)",
    r"(?<=\bby )\(20\)",
    r"\(46\)(?= and \(67\))",
    r"(?<=\(46\) and )\(67\)",
)
_SPELLED = (rf"(?<![\w.]){re.escape(place)}(?!\w)" for place in (*PLACES, *_ALIASES) if place[0] != "(")
_LABELS = rf"(?<=[( ])(?:{'|'.join(ERRORS)})(?=[,)])"
NAMED = re.compile("|".join([*_SPELLED, *_EQUATIONS, _LABELS]))
"""Matches a place or a label in a sentence."""


def errors_named(said: str) -> set[str]:
    """The labels, such as ``O1``, of errors in papers that the sentence ``said`` names in parentheses.

    Several may share the parentheses: ``(O1, O2)``. Empty where there is none.
    """
    return set(re.findall(_LABELS, said))


def entry_of(name: str) -> tuple[str, str]:
    """The entry of the catalogue of papers that ``name`` calls, as a heading and a text.

    Of a place in a paper: its full name and what it says. Of an error in a paper: its label and what is
    wrong. Two ways to write one place, as ``(17)`` and ``Thm. 1 (17)``, have the same entry.

    Raises:
        KeyError: ``name`` is none of `NAMED`.
    """
    if name in ERRORS:
        return name, ERRORS[name]
    place, _, says = PLACES[_ALIASES.get(name, name)].partition(": ")
    return place, says
