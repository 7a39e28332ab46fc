"""What messages cost: energy, time and bytes, by the radio's links and the aggregators' wires.

Rules (docs/radio.md). Devices of a cell send in turns or side by side; cells do so at the same time, an
aggregation waits for the slowest. An aggregator has a wire of its own to its parent. Broadcasts go out once
a cell, at the rate of the receiver that hears worst; at a global aggregation every device of the cell
listens, below only those that take part. Energies add up over everybody. Computing costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.network.tree import Tree
from sfumato.radio.cells import Airtime, Cells, bits_of, bytes_of, slowest_in_cells
from sfumato.radio.channels import BoolArray, Channels, FloatArray, IntArray, watts
from sfumato.radio.secagg_traffic import secure_bytes
from sfumato.spec.document import Spec
from sfumato.spec.transport import Compression

FLOAT_BITS = 32


@dataclass(frozen=True)
class Cost:
    """Energy, time and bytes that one or several transmissions take.

    Attributes:
        energy_j: of all transmissions, J.
        delay_s: from its beginning to its end, s.
        bytes_up: sent towards the cloud, over all hops.
        bytes_down: sent towards the devices, over all hops; a broadcast counts once a receiver.
    """

    energy_j: float = 0.0
    delay_s: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0

    def then(self, other: Cost) -> Cost:
        """The sum of this cost and ``other``, one after the other."""
        energy_j, delay_s = self.energy_j + other.energy_j, self.delay_s + other.delay_s
        return Cost(energy_j, delay_s, self.bytes_up + other.bytes_up, self.bytes_down + other.bytes_down)


@dataclass(frozen=True, eq=False)
class Attempts:
    """What became of the messages on the devices' hop.

    Attributes:
        sends: which participants send their message ``[P]``.
        times: how often each does, more than once where a session is repeated ``[P]``.
    """

    sends: BoolArray
    times: IntArray


@dataclass(frozen=True, eq=False)
class Analog:
    """A superposed transmission on the devices' hop.

    Attributes:
        energy_j: in every cell ``[cells]``.
        delay_s: in every cell ``[cells]``.
        bytes_up: what the transmissions stand for, uncoded.
    """

    energy_j: FloatArray
    delay_s: FloatArray
    bytes_up: int


@dataclass(frozen=True)
class Backhaul:
    """What goes over the wires below the nodes of a tier in one aggregation.

    Attributes:
        up: towards those nodes.
        down: back from them.
    """

    up: Cost = Cost()
    down: Cost = Cost()


@dataclass(frozen=True, eq=False)
class Predicted:
    """What one aggregation is expected to take, for so many devices of every leaf (h2fdp.txt, section 5).

    The downlink of an aggregation by the edges is no part of the paper's cost, so it is none of these.

    Attributes:
        local_energy_j: E_c,Loc, the devices' uplinks ``[..., leaves]``.
        local_delay_s: Δ_c,Loc ``[..., leaves]``.
        global_energy_j: E_Glob: the uplinks and the wires up ``[...]``.
        global_delay_s: Δ_Glob: the round trip, the slowest uplink and the slowest broadcast ``[...]``.
    """

    local_energy_j: FloatArray
    local_delay_s: FloatArray
    global_energy_j: FloatArray
    global_delay_s: FloatArray


@dataclass(frozen=True, eq=False)
class TreeCosts:
    """Costs of a tree's messages.

    Attributes:
        tree: who there is.
        channels: between devices and leaves.
        message_bits: of a whole average, up.
        model_bits: of what comes down: a model, and with SCAFFOLD the server's control variate.
        sent_bits: of what a device sends.
        sent_coordinates: k, how many of the model's coordinates that holds.
        parameters: M, coordinates of a model.
        secure: for every tier, whether its nodes receive by secure aggregation.
    """

    tree: Tree
    channels: Channels
    message_bits: int
    model_bits: int
    sent_bits: int
    sent_coordinates: int
    parameters: int
    secure: tuple[bool, ...]

    @classmethod
    def of(cls, spec: Spec, tree: Tree, parameters: int) -> TreeCosts:
        """The costs of messages in ``tree`` for a model of ``parameters`` parameters.

        Raises:
            SpecError: distances that do not fit.
        """
        channels = Channels.of_tree(spec, tree)
        if spec.privacy.clip is not None and spec.privacy.clip.adapt is not None:
            parameters += 1  # messages tell whether they were clipped, and models come with the next norm
        secure = tuple(spec.transport.get(hop) == "secure-aggregation" for hop in tree.hop_names)
        each, compression = channels.radio.bits_per_parameter, spec.compression
        kept, sent = kept_coordinates(compression, parameters), sent_bits(compression, parameters, each)
        bits = parameters * each
        down = bits * (2 if spec.training.keeps_variates else 1)
        return cls(tree, channels, bits, down, sent, kept, parameters, secure)

    def round(self, number: int) -> TreeRound:
        """The costs over the channels as they are in round ``number`` (from 0)."""
        return TreeRound(self, Cells(self.channels, self.channels.gains(number)))

    @cached_property
    def wires(self) -> tuple[Backhaul, ...]:
        """For every tier, the cost of one aggregation by its nodes on all wires below, up and down."""
        tree, found = self.tree, [Backhaul()]
        for tier in range(self.tree.depth - 1, 0, -1):
            parents, message = tree.parents[tier], np.full(tree.tiers[tier].size, self.message_bytes)
            up, alone = message, np.zeros_like(message)
            if self.secure[tier - 1]:
                up, alone = secure_bytes(parents, tree.tiers[tier - 1].size, self.parameters)
            upwards = self._over_wires(up).then(found[-1].up)
            model = np.full(len(message), self.model_bytes)
            back, further = self._over_wires(model + alone), found[-1].down
            downwards = Cost(back.energy_j, back.delay_s, 0, back.bytes_up).then(further)
            found.append(Backhaul(upwards, downwards))
        return tuple(reversed(found))

    @property
    def message_bytes(self) -> int:
        """Bytes that an aggregator sends up for one average, rounded up."""
        return bytes_of(self.message_bits)

    @property
    def model_bytes(self) -> int:
        """Bytes of a broadcast model, rounded up."""
        return bytes_of(self.model_bits)

    def _over_wires(self, sizes: IntArray) -> Cost:
        """The cost of sending messages of ``sizes`` bytes ``[n]`` at once, each over a wire of its own."""
        radio = self.channels.radio
        times = bits_of(sizes) / radio.wired_rate_bps
        return Cost(watts(radio.wired_power_dbm) * float(times.sum()), float(times.max()), int(sizes.sum()))


@dataclass(frozen=True, eq=False)
class TreeRound:
    """A tree's costs in one round."""

    costs: TreeCosts
    cells: Cells

    def aggregation(
        self,
        tier: int,
        devices: IntArray,
        hop: Attempts | Analog | None = None,
        also: IntArray | None = None,
    ) -> Cost:
        """The cost of one aggregation by the nodes of ``tier``, with the broadcast of its result.

        Args:
            tier: 0 is the cloud.
            devices: who takes part, ascending ``[P]``.
            hop: what became of the devices' messages; ``None``: each is sent once.
            also: devices that receive their leaf's own average before that broadcast, ascending; ``None``:
                none.
        """
        tree, bits, wires = self.costs.tree, self.costs.model_bits, self.costs.wires[tier]
        up, bytes_up, bytes_alone = self._uplink(devices, hop)
        receivers = np.arange(tree.device_count) if tier == 0 else devices
        down = self.cells.broadcast(receivers, bits)
        if also is not None:
            down = self.cells.broadcast(also, bits).then(down)
        heard = len(receivers) + (0 if also is None else len(also))
        nodes, paths = tree.tiers[tier].size, tree.paths[:, tier]
        # everybody below a node waits for it, and it for everybody below
        waits = slowest_in_cells(up.delay_s, paths, nodes) + slowest_in_cells(down.delay_s, paths, nodes)
        radio = Cost(
            energy_j=float(up.energy_j.sum() + down.energy_j.sum()),
            delay_s=float(waits.max()),
            bytes_up=bytes_up,
            bytes_down=bytes_alone + heard * self.costs.model_bytes,
        )
        return radio.then(wires.up).then(wires.down)

    def predicted(self, counts: IntArray) -> Predicted:
        """Expected costs of local and global aggregations.

        ``counts``: participants by leaf, ``[..., leaves]``.
        """
        bits, wires = self.costs.model_bits, self.costs.wires[0]
        up = self._expected_messages(counts)
        everybody = np.arange(self.costs.tree.device_count)
        down_s = float(self.cells.broadcast(everybody, bits).delay_s.max())
        return Predicted(
            local_energy_j=up.energy_j,
            local_delay_s=up.delay_s,
            global_energy_j=up.energy_j.sum(axis=-1) + wires.up.energy_j,
            global_delay_s=up.delay_s.max(axis=-1) + wires.up.delay_s + wires.down.delay_s + down_s,
        )

    def _expected_messages(self, counts: IntArray) -> Airtime:
        """Expected airtime of the devices' hop with ``counts[..., leaf]`` participants.

        Under secure aggregation it is that of all frames of a session.
        """
        if not self.costs.secure[-1]:
            return self.cells.expected_uplink(counts, lambda _: float(self.costs.sent_bits))
        length = self.costs.sent_coordinates

        def each(parties: int, way: int) -> float:
            return 8.0 * float(secure_bytes(np.zeros(parties, dtype=np.int64), 1, length)[way][0])

        up = self.cells.expected_uplink(counts, lambda parties: each(parties, 0))
        return up.then(self.cells.expected_unicast(counts, lambda parties: each(parties, 1)))

    def _uplink(self, devices: IntArray, hop: Attempts | Analog | None) -> tuple[Airtime, int, int]:
        """Compute what the devices' hop costs: airtime by cell, bytes up, and bytes down to single devices.

        The airtime is energy (joules) and delay (seconds), ``[cells]`` each. ``devices``: who takes part,
        ascending ``[P]``; ``hop``: what went over it; ``None``: the message of each of them, once.
        """
        if isinstance(hop, Analog):
            return Airtime(hop.energy_j, hop.delay_s), hop.bytes_up, 0
        sends, times = np.ones(len(devices), dtype=np.bool_), np.ones(len(devices), dtype=np.int64)
        if hop is not None:
            sends, times = hop.sends, hop.times
        if not self.costs.secure[-1]:
            bits, sent = self.costs.sent_bits, sends * times
            up = self.cells.uplink(devices, (bits * sent).astype(float))
            return up, int(sent.sum()) * bytes_of(bits), 0
        cells, count = self.cells.channels.cells[devices], self.cells.channels.cell_count
        each = secure_bytes(cells, count, self.costs.sent_coordinates, ~sends)
        bytes_up, bytes_down = each[0] * times, each[1] * times
        up = self.cells.uplink(devices, bits_of(bytes_up))
        down = self.cells.unicast(devices, bits_of(bytes_down))
        return up.then(down), int(bytes_up.sum()), int(bytes_down.sum())


def kept_coordinates(compression: Compression | None, parameters: int) -> int:
    """k, how many of ``parameters`` coordinates a message under ``compression`` holds; at least 1."""
    if compression is None:
        return parameters
    return max(1, round(compression.ratio * parameters))


def sent_bits(compression: Compression | None, parameters: int, float_bits: int) -> int:
    """Bits of one device's message, for a model of ``parameters`` coordinates under ``compression``.

    Which coordinates are sent is public (a shared seed, or the released model), so only their values are:
    each of ``float_bits`` bits, as the radio sends a float; or, rounded (QSGD), each of ``compression.bits``
    bits in whole bytes, and a float of 32 bits that scales them.
    """
    kept = kept_coordinates(compression, parameters)
    if compression is None or compression.bits is None:
        return kept * float_bits
    return 8 * bytes_of(kept * compression.bits) + FLOAT_BITS
