"""How long the cryptography of HDP takes on this machine: secure aggregation and elections of one round.

Times are CPU seconds of one process that plays all parties of a zone, one after the other. The machine
decides them, so two computations of the same spec differ: every figure is the median of `REPEATS`, and the
seeds of a study say how much such medians differ.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from sfumato.election.session import elect
from sfumato.election.terms import ElectionTerms
from sfumato.errors import SpecError
from sfumato.radio.secagg_traffic import RING_BITS, secure_bytes
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.secure_aggregation.session import aggregate
from sfumato.secure_aggregation.terms import complete_terms
from sfumato.spec.document import Spec
from sfumato.spec.training import Everyone
from sfumato.studies.measures.base import Measurement, Measurements
from sfumato.studies.measures.formulas import parameters_of
from sfumato.wire.keys import Identity

REPEATS = 3
"""Times that a zone's session is played for one figure, which is the median."""
ONE_ZONE, ALL_ZONES, CLIENT, SUPERNODE = "one zone", "all zones", "a client", "a supernode"
CLIENTS, WITH_SENT_ON = "all clients", "with what supernodes send on"
_LEAST = 3


def aggregation_seconds(spec: Spec, _: str) -> Measurements:
    """CPU seconds of the secure aggregation of one round: over the complete graph, server malicious.

    Args:
        spec: of HDP, in which everybody takes part.

    Returns:
        By series: a client of the largest zone (the mean), its supernode, the zone with all its parties, and
        all zones one after the other.

    Raises:
        SpecError: the model is not a built-in one, not everybody takes part, or a zone has too few devices.
    """
    length, zones = parameters_of(spec), _zones(spec)
    costs = {size: _session_cost(size, length) for size in zones}
    client, supernode, _whole = costs[max(zones)]
    found = _of_zones({size: whole for size, (_client, _server, whole) in costs.items()}, zones)
    return [Measurement(client, CLIENT), Measurement(supernode, SUPERNODE), *found]


def aggregation_megabytes(spec: Spec, _: str) -> Measurements:
    """Megabytes (10⁶ bytes) of the secure aggregation of one round.

    ``spec`` and errors as of `aggregation_seconds`.

    Returns:
        By series: all that clients send and receive; and this with the message that every zone's supernode
        sends on to the cloud, a number of 32 bits for every parameter.
    """
    zones = _zones(spec)
    of_clients = _bytes_of_clients(spec, zones)
    sent_on = sum(zones.values()) * _bytes_of_vector(spec)
    return [Measurement(of_clients / 1e6, CLIENTS), Measurement((of_clients + sent_on) / 1e6, WITH_SENT_ON)]


def aggregation_overhead_megabytes(spec: Spec, _: str) -> Measurements:
    """Megabytes that secure aggregation adds to the models of one round: keys, shares and signatures.

    All that clients send and receive, but for the masked model that each of them sends. ``spec`` and errors
    as of `aggregation_seconds`.
    """
    zones = _zones(spec)
    models = sum(size * count for size, count in zones.items()) * _bytes_of_vector(spec)
    return [Measurement((_bytes_of_clients(spec, zones) - models) / 1e6)]


def election_seconds(spec: Spec, _: str) -> Measurements:
    """CPU seconds of the elections of one round, in which all clients of a zone elect one of themselves.

    Args:
        spec: as of `aggregation_seconds`.

    Returns:
        By series: the largest zone with all its parties, and all zones one after the other.

    Raises:
        SpecError: as of `aggregation_seconds`, but for the model.
    """
    zones = _zones(spec)
    return _of_zones({size: _median(partial(_election_time, size)) for size in zones}, zones)


def _bytes_of_clients(spec: Spec, zones: Mapping[int, int]) -> float:
    """All bytes that clients send and receive for the sums of their zones.

    ``zones``: how many zones have that many devices.
    """
    cells = np.repeat(np.arange(sum(zones.values())), [size for size, n in zones.items() for _ in range(n)])
    up, down = secure_bytes(cells, int(cells[-1]) + 1, parameters_of(spec))
    return float(up.sum() + down.sum())


def _bytes_of_vector(spec: Spec) -> float:
    """Bytes of a masked model, or of a sum: a number of `RING_BITS` bits for every parameter."""
    return parameters_of(spec) * RING_BITS / 8


def _of_zones(seconds: Mapping[int, float], zones: Mapping[int, int]) -> list[Measurement]:
    """The series of the largest zone and of all zones.

    ``seconds``: of a zone, by its size; ``zones``: how many zones have that size.
    """
    every = sum(seconds[size] * count for size, count in zones.items())
    return [Measurement(seconds[max(zones)], ONE_ZONE), Measurement(every, ALL_ZONES)]


def _zones(spec: Spec) -> Mapping[int, int]:
    """How many zones have how many devices; the key is the number of devices.

    Raises:
        SpecError: not everybody takes part, or a zone has too few devices.
    """
    if not isinstance(spec.training.participation, Everyone):
        kind = spec.training.participation.kind
        raise SpecError("training.participation", kind, "must be all: whole zones are timed")
    sizes, counts = np.unique(resolve_tree(spec).tree.devices, return_counts=True)
    if sizes[0] < _LEAST:
        raise SpecError("topology.devices_per_edge", int(sizes[0]), f"must be at least {_LEAST} to be timed")
    return dict(zip(sizes.tolist(), counts.tolist(), strict=True))


def _session_cost(parties: int, length: int) -> tuple[float, float, float]:
    """CPU seconds of a session of secure aggregation: medians of `REPEATS` sessions.

    Args:
        parties: number of clients.
        length: of their vectors.

    Returns:
        Seconds of the mean client, of the server, and of all parties together.
    """
    costs = []
    for repeat in range(REPEATS):
        identities, server = [Identity() for _ in range(parties)], Identity()
        public, threshold = tuple(one.public for one in identities), 2 * parties // 3 + 1
        terms = complete_terms(
            f"timing {repeat}",
            public,
            server.public,
            length=length,
            threshold=threshold,
            threat_model="malicious",
            colluders=0,
            bits=RING_BITS,
        )
        vectors = dict.fromkeys(range(parties), np.ones(length, np.uint32))
        outcome = aggregate(terms, identities, server, vectors)
        clients, last = sum(outcome.client_seconds), outcome.server_seconds
        costs.append((clients / parties, last, clients + last))
    client, last, whole = (statistics.median(column) for column in zip(*costs, strict=True))
    return client, last, whole


def _election_time(parties: int) -> float:
    """CPU seconds of an election among ``parties`` clients, keys not counted."""
    identities = [Identity() for _ in range(parties)]
    terms = ElectionTerms("timing", tuple(one.public for one in identities))
    began = time.process_time()
    elect(terms, identities)
    return time.process_time() - began


def _median(timed: Callable[[], float]) -> float:
    """The median of `REPEATS` times."""
    return statistics.median(timed() for _ in range(REPEATS))
