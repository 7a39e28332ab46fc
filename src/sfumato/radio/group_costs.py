"""What messages between workers and masters of groups cost, by the radio's links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.network.groups import Groups
from sfumato.radio.cells import Cells, bits_of, bytes_of
from sfumato.radio.channels import BoolArray, Channels, IntArray
from sfumato.radio.costs import Cost, kept_coordinates, sent_bits
from sfumato.radio.secagg_traffic import secure_bytes
from sfumato.spec.document import Spec


@dataclass(frozen=True, eq=False)
class GroupCosts:
    """Costs of the messages between workers and masters; a link is a membership.

    Attributes:
        groups: who there is.
        channels: between workers and masters.
        model_bits: of one model, down.
        sent_bits: of one message, up.
        sent_coordinates: k, how many of the model's coordinates that holds.
        secure: whether masters receive by secure aggregation.
    """

    groups: Groups
    channels: Channels
    model_bits: int
    sent_bits: int
    sent_coordinates: int
    secure: bool

    @classmethod
    def of(cls, spec: Spec, groups: Groups, parameters: int) -> GroupCosts:
        """The costs of messages in ``groups`` for models of ``parameters`` parameters.

        Raises:
            SpecError: distances that do not fit.
        """
        channels, secure = Channels.of_groups(spec, groups), "secure-aggregation" in spec.transport.values()
        each, compression = channels.radio.bits_per_parameter, spec.compression
        kept, sent = kept_coordinates(compression, parameters), sent_bits(compression, parameters, each)
        return cls(groups, channels, parameters * each, sent, kept, secure)

    def round(self, number: int, links: IntArray, lost: BoolArray | None = None) -> Cost:
        """The cost of a round in which the memberships ``links`` send, and every master broadcasts.

        Args:
            number: of the round, from 0.
            links: positions in ``groups.members``, ascending.
            lost: which of ``links`` fall silent before they send, ``[len(links)]``; ``None``: none.
        """
        cells = Cells(self.channels, self.channels.gains(number))
        model, everybody = bytes_of(self.model_bits), np.arange(len(self.groups.members))
        bytes_up = np.full(len(links), bytes_of(self.sent_bits))
        if lost is not None:
            bytes_up[lost] = 0
        bytes_down = np.zeros(len(links), dtype=np.int64)
        if self.secure:
            at, length = self.channels.cells[links], self.sent_coordinates
            bytes_up, bytes_down = secure_bytes(at, self.groups.count, length, lost)
        up, alone = cells.uplink(links, bits_of(bytes_up)), cells.unicast(links, bits_of(bytes_down))
        down = alone.then(cells.broadcast(everybody, self.model_bits))
        both = up.then(down)
        return Cost(
            energy_j=float(both.energy_j.sum()),
            delay_s=float(both.delay_s.max()),
            bytes_up=int(bytes_up.sum()),
            bytes_down=int(bytes_down.sum()) + len(everybody) * model,
        )
