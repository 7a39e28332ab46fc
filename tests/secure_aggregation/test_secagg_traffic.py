"""The bytes predicted are those that sessions send."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.secure_aggregation.server import Phase
from sfumato.secure_aggregation.session import aggregate
from sfumato.secure_aggregation.traffic import session_bytes


@pytest.mark.parametrize("threat_model", ["malicious", "semi-honest"])
@pytest.mark.parametrize("gone", [(), (1, 4)])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_session_sends_what_was_predicted(make_parties, threat_model, gone, sparse) -> None:
    parties, count, length, threshold = make_parties(12), 12, 77, 8
    terms = parties.complete(length, threshold, threat_model=threat_model)
    if sparse:
        terms = parties.sparse(length, threshold, 8, 6)
        threat_model = terms.threat_model
    vectors = {i: np.zeros(length, dtype="<u4") for i in range(count)}
    outcome = aggregate(terms, parties.identities, parties.server, vectors, drop={Phase.MASK: gone})
    found = session_bytes(
        survivors=count - len(gone),
        length=length,
        degree=terms.degree,
        threshold=threshold,
        threat_model=threat_model,
    )
    for party in range(count):
        sent = outcome.bytes_up[party], outcome.bytes_down[party]
        stays = found.survivor_up, found.survivor_down
        assert sent == ((found.dropped_up, found.dropped_down) if party in gone else stays)
