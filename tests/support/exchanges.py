"""Every exchange between ranks, checked on each: a script that ranks run."""

import numpy as np
import pytest
import torch

from sfumato.distributed.agreement import require_same
from sfumato.distributed.division import share_out
from sfumato.distributed.launch import Launch
from sfumato.distributed.process_group import joined
from sfumato.distributed.ranks import Ranks, filled_in
from sfumato.errors import RanksDifferError
from sfumato.protocols.device_vectors import DeviceVectors


def check_vectors(ranks: Ranks) -> None:
    """Vectors follow who trains, round by round; rank 0 can have all; divided again, nothing is lost."""
    rng, devices, wanted = np.random.default_rng(3), 9, {}
    vectors = DeviceVectors(torch.zeros(2), ranks)
    for number in range(6):
        chosen = np.sort(rng.choice(devices, 5, replace=False))
        trains = rng.integers(0, ranks.count, 5)
        owners = [np.flatnonzero(trains == rank) for rank in range(ranks.count)]
        before, vectors = vectors, vectors.copy()
        vectors.move_(chosen, owners)
        own = chosen[owners[ranks.rank]]
        assert vectors.of(own).tolist() == [wanted.get(device, [0.0, 0.0]) for device in own.tolist()]
        vectors.write_(
            own, torch.tensor([[device, number] for device in own.tolist()]).reshape(-1, 2).float()
        )
        wanted |= {device: [float(device), float(number)] for device in chosen.tolist()}
        assert sum(ranks.gather(len(vectors.written))) == len(wanted)  # each is held once
        again = before.copy()
        again.move_(chosen, owners)  # the state before is as it was
    whole = vectors.whole()
    assert not whole.is_shared
    assert whole.written.keys() == (wanted.keys() if ranks.rank == 0 else set())
    packed = ranks.of_first(whole.pack())
    assert dict(zip(packed[0].tolist(), packed[1].tolist(), strict=True)) == wanted
    divided_again = DeviceVectors.unpack(packed, torch.zeros(2)).divided_among(ranks)
    sizes = ranks.gather(len(divided_again.written))
    assert sum(sizes) == len(wanted)
    assert max(sizes) - min(sizes) <= 1
    assert all(map(torch.equal, ranks.of_first(divided_again.whole().pack()), packed))


def check(launch: Launch) -> None:
    with joined(launch, cuda=False) as ranks:
        r, n = ranks.rank, ranks.count
        assert (r, n) == (launch.rank, launch.count)

        large = np.array([2**62 // n, r, -r])
        large = ranks.added(large)
        assert large.tolist() == [2**62 // n * n, n * (n - 1) // 2, -(n * (n - 1) // 2)]

        known = np.zeros(7)
        known[r::n] = np.array([0.1, -0.0, np.inf, 1e-310, -3.0, np.pi, 2.0])[r::n]
        assert filled_in(ranks, known).tolist() == [0.1, -0.0, np.inf, 1e-310, -3.0, np.pi, 2.0]

        assert ranks.largest(np.array([2**62 + r, -r])).tolist() == [2**62 + n - 1, 0]

        owners = [torch.arange(rank, 7, n) for rank in range(n)]
        owners[0] = owners[0].flip(0)  # in any order
        for dtype in (torch.float32, torch.int64, torch.bool):
            wanted = torch.arange(14).reshape(7, 2).to(dtype)
            values = torch.zeros_like(wanted)
            values[owners[r]] = wanted[owners[r]]
            ranks.share_rows_(values, owners)
            assert torch.equal(values, wanted)
        nothing = torch.zeros(0, 3)
        ranks.share_rows_(nothing, [torch.zeros(0, dtype=torch.int64)] * n)

        going = [(r + to) % 3 for to in range(n)]  # rows for each rank
        sent = torch.tensor([[r, to] for to, rows in enumerate(going) for _ in range(rows)]).reshape(-1, 2)
        coming = [(start + r) % 3 for start in range(n)]
        came = ranks.moved(sent.float(), going, coming)
        assert came.tolist() == [[start, r] for start, rows in enumerate(coming) for _ in range(rows)]

        check_vectors(ranks)

        assert ranks.gather("x" * r) == ["x" * rank for rank in range(n)]
        long = [bytes([rank]) * (5000 * rank) for rank in range(n)]  # some in one exchange, others in two
        assert ranks.gather(long[r]) == long
        for size in range(4060, 4110):  # around what the first exchange has room for
            assert ranks.gather(bytes([r]) * size) == [bytes([rank]) * size for rank in range(n)]
        assert ranks.of_first({"from": r}) == {"from": 0}
        assert ranks.of_first(None) is None

        done: list[int] = []
        assert share_out(range(7), lambda job: (done.append(job), job * job)[1], ranks=ranks) == [
            job * job for job in range(7)
        ]
        assert done == list(range(7))[r::n]
        assert share_out([], str, ranks=ranks) == []
        assert share_out(range(9), str, ranks=ranks, threads=2) == list("012345678")

        require_same(ranks, {"torch": "2"})
        with pytest.raises(RanksDifferError) as refused:
            require_same(ranks, {"torch": "2", "data": "b" if r == n - 1 else "a"})
        assert (refused.value.rank, refused.value.name) == (n - 1, "data")

        firsts = ranks.gather(ranks.is_first_to_fail())
        assert sum(firsts) == 1
    print("all exchanged")


if __name__ == "__main__":
    check(Launch.of())
