"""Secure aggregation: the aggregator learns the sum of the survivors' vectors and nothing else.

Over the complete graph, towards a semi-honest or a malicious server, it is Bonawitz et al. 2017, "Practical
Secure Aggregation for Privacy-Preserving Machine Learning", CCS; over a sparse graph, towards a semi-honest
server, SecAgg+ of Bell, Bonawitz, Gascón, Lepoint and Raykova 2020, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead", CCS. What exactly is promised: `threats`.

Everything is bytes in, bytes out. ``election``, ``radio``, ``schedule`` and ``protocols`` import from here;
here only ``wire`` is imported.

    terms          what all parties agree on beforehand; its hash names the session
    threats        against whom a session protects, exactly, and under which terms
    masks          key streams (AES-256-CTR) and masks in the ring
    shares         Shamir's secret sharing
    graph          who exchanges masks and shares with whom
    messages       payloads, as bytes
    client, server the two kinds of party
    session        drives them, with dropouts, for the simulator and tests
    quantisation   real vectors as ring elements: scale, ring size, sensitivity, noise (figures only)
    encoding       applies such a plan: clipping, stochastic rounding, noise
    discrete_gaussian  exact integer noise
    traffic        what a session sends, by arithmetic
    fast_path      the same bits without the cryptography
"""
