"""What an account of a tree keeps: the latest results, and nothing that keeps the account in memory."""

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import sfumato as sf
from sfumato.privacy.kept_results import Kept


def test_a_result_is_computed_once_and_the_oldest_goes():
    kept, computed = Kept[int](2), list[int]()

    def result(number: int) -> int:
        return kept.once(number, lambda: computed.append(number) or number)

    assert [result(number) for number in (1, 2, 1, 3, 2, 1)] == [1, 2, 1, 3, 2, 1]
    assert computed == [1, 2, 3, 1]


def test_threads_share_what_is_kept():
    kept, switches = Kept[int](2), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            wanted = [number % 5 for number in range(20_000)]
            assert list(pool.map(lambda key: kept.once(key, lambda: key + 1), wanted)) == [
                key + 1 for key in wanted
            ]
    finally:
        sys.setswitchinterval(switches)


@pytest.mark.parametrize("changes", [[], ["training.participation={count: 10}"], ["privacy.unit=both"]])
def test_an_account_is_freed_without_the_garbage_collector(changes):
    spec = sf.load_spec("quickstart", ["training.rounds=3", "training.batches=poisson", *changes])
    report = sf.account(spec)
    releases = weakref.ref(report.plan.releases)
    gc.disable()
    try:
        del report
        assert releases() is None
    finally:
        gc.enable()
