"""Against whom a session protects, exactly, and the terms under which it does.

There are n parties, threshold t, share threshold s and graph degree k. Up to c parties (``colluders``) pool
all they see with the server; which ones is fixed before the session. The other n - c are honest. Sums are of
ring elements modulo 2^bits. All of it holds up to the cryptography: Ed25519, X25519, HKDF-SHA256, AES-256 in
GCM and in CTR mode.

**Semi-honest**: the server and the colluders follow the protocol. They learn one sum, of the vectors of the
survivors, at least t, of whom at least t - c are honest: so the sum of these, and nothing else of them. Over
the complete graph this is sure: c < s colluders do not rebuild a secret, and any two honest survivors share a
mask that stays. Over a sparse graph at most n - t + c parties collude or drop out, and it fails with
probability exposure + isolation of `graph`, over the public order of the graph; if that is above 2^-40 the
terms are refused.

**Malicious**: the server and the colluders do anything: lie about who dropped out, show each party something
else, delay, replay, stop. They learn at most one sum, of vectors of at least t - c honest parties (more than
half of all honest ones), and nothing else of these; of the honest parties outside it nothing. Required: the
complete graph, 2t > n + c and 2s > n + c. Why that is enough:

  1. One list. Before an honest party gives up a share it wants t signatures under the very list V of
     survivors that it signed, and it signs one list in its life (`session_memory`). Two such lists have at
     least t - c honest signers each, none in common: 2(t - c) ≤ n - c, that is 2t ≤ n + c.
  2. One secret of each party. By 1 honest parties give up shares of the seed of those on V and of the masking
     key of the others, never both; and c shares are nobody's secret, as c ≤ (n + c)/2 < s. So of an honest
     party outside V the own mask stays on its vector, whatever else is known.
  3. One sum. Two honest parties on V are joined if both put their common mask on. A party masks with those
     whose shares came, at least s - 1 others, and signs V only if they came from all others on V. So the
     honest signers, at least t - c, are joined to each other, and to every honest party on V that put on a
     mask of theirs. One that did not would have its s - 1 others among the n - 1 - (t - c) that are not
     honest signers: s + t ≤ n + c, but 2s and 2t are both above n + c. So all honest parties on V are joined
     through the signers; masks of the joined cancel only in the sum of all of them (a mask that one end alone
     put on never does), and everything else is uniform.

  Below these bounds the attack is real: two halves of the honest parties sign two lists
  (tests/transport/test_secagg_threats.py plays it, at the bound and one below, and tries all ways to deliver
  shares among few parties).

A sparse graph is refused towards a malicious server: with sight of the graph it claims that the right k
parties dropped out, and cuts off whom it likes (a degree above n - t + c would withstand that, and save
little). The malicious variant of Bell et al. (2020, section 4: clients draw their neighbours, keys are
committed to in a Merkle tree) is not implemented: by its own functionality the server may learn several sums,
each of a large part of the parties, and the accounting here charges for one.

In both cases t - c ≥ 2 is required: the sum of one vector is the vector. Over the complete graph n - max(t,
s) parties may drop out, in any phase, and there is still a result.

Not promised: that there is a result (a malicious party or server can end a session without one, which is
noticed and named); that vectors are within bounds, or the sum right, if a party or the server is malicious;
that the set of participants is secret. The terms are part of the trust: whoever writes them chooses the
parties, the threshold and the threat model, so a party takes part under terms that it made or checked itself.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from sfumato.secure_aggregation import graph
from sfumato.wire.errors import UnsafeTermsError

ThreatModel: TypeAlias = Literal["semi-honest", "malicious"]


def require_guarantee(
    *,
    parties: int,
    threshold: int,
    degree: int,
    share_threshold: int,
    threat_model: ThreatModel,
    colluders: int,
) -> None:
    """Check that the privacy guarantee of the module's docstring holds under these terms.

    Args:
        parties: enrolled.
        threshold: fewest survivors whose sum may be learnt.
        degree: neighbours of a party in the graph of masks.
        share_threshold: shares that rebuild a secret.
        threat_model: what the server may do.
        colluders: parties that collude with it.

    Raises:
        UnsafeTermsError: it does not; the message says which inequality fails.
    """
    if threshold - colluders < 2:
        raise UnsafeTermsError(
            f"threshold: got {threshold}; must be at least {colluders + 2}: {colluders} colluders in a sum"
            f" of {threshold} leave fewer than two others in it"
        )
    if threat_model == "malicious":
        _require_against_malicious(parties, threshold, degree, share_threshold, colluders)
        return
    risk = graph.risks_of_graph(
        parties, degree, share_threshold, colluders=colluders, dropouts=parties - threshold
    )
    if risk.exposure + risk.isolation > 2.0**-graph.SECURITY_BITS:
        raise UnsafeTermsError(
            f"degree, share_threshold: got {degree}, {share_threshold}; with {colluders} colluders and up to"
            f" {parties - threshold} dropouts of {parties} parties a party is exposed with probability up to"
            f" {risk.exposure:.2g} and the graph falls apart with up to {risk.isolation:.2g}; together at"
            " most 2^-40 is allowed"
        )


def _require_against_malicious(
    parties: int, threshold: int, degree: int, share_threshold: int, colluders: int
) -> None:
    """Raise an UnsafeTermsError unless the terms protect from a malicious server.

    So they do on the complete graph, with both thresholds above half of parties and colluders together. The
    arguments are those of `require_guarantee`.
    """
    if degree != parties - 1:
        raise UnsafeTermsError(
            f"degree: got {degree}; a malicious server needs the complete graph, {parties - 1}: it would cut"
            " a sparse one by lies about who dropped out"
        )
    least = (parties + colluders) // 2 + 1
    for name, value in (("threshold", threshold), ("share_threshold", share_threshold)):
        if value < least:
            raise UnsafeTermsError(
                f"{name}: got {value}; must be at least {least}, more than half of {parties} parties and"
                f" {colluders} colluders: else a malicious server shows two halves two lists of survivors"
            )
