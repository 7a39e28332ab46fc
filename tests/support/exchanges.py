"""Every exchange between ranks, checked on each: a script that ranks run."""

import numpy as np
import pytest
import torch

from sfumato.distributed.agreement import require_same
from sfumato.distributed.division import divided
from sfumato.distributed.launch import Launch
from sfumato.distributed.process_group import joined
from sfumato.distributed.ranks import filled_in
from sfumato.errors import RanksDifferError


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

        assert ranks.gather("x" * r) == ["x" * rank for rank in range(n)]
        assert ranks.of_first({"from": r}) == {"from": 0}
        assert ranks.of_first(None) is None

        done: list[int] = []
        assert divided(range(7), lambda job: (done.append(job), job * job)[1], ranks=ranks) == [
            job * job for job in range(7)
        ]
        assert done == list(range(7))[r::n]
        assert divided([], str, ranks=ranks) == []
        assert divided(range(9), str, ranks=ranks, threads=2) == list("012345678")

        require_same(ranks, {"torch": "2"})
        with pytest.raises(RanksDifferError) as refused:
            require_same(ranks, {"torch": "2", "data": "b" if r == n - 1 else "a"})
        assert (refused.value.rank, refused.value.name) == (n - 1, "data")

        firsts = ranks.gather(ranks.is_first_to_fail())
        assert sum(firsts) == 1
    print("all exchanged")


if __name__ == "__main__":
    check(Launch.of())
