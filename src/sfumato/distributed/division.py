"""Jobs that do not depend on each other, divided among ranks and their threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sfumato.distributed.ranks import ALONE, Ranks

Job = TypeVar("Job")
Result = TypeVar("Result")


def share_out(
    jobs: Sequence[Job], work: Callable[[Job], Result], *, ranks: Ranks = ALONE, threads: int = 1
) -> list[Result]:
    """The result of ``work`` for each job, in the order of ``jobs``, on every rank.

    Args:
        jobs: the same on every rank; rank r of N does jobs r, r + N and so on.
        work: of one job; several threads may call it. Its results are small, and can be pickled.
        ranks: of the run.
        threads: of this rank.
    """
    own = jobs[ranks.rank :: ranks.count]
    workers = min(threads, len(own))
    if workers <= 1:
        done = [work(job) for job in own]
    else:
        with ThreadPoolExecutor(workers) as pool:
            done = list(pool.map(work, own))
    every = ranks.gather(done)
    return [every[number % ranks.count][number // ranks.count] for number in range(len(jobs))]
