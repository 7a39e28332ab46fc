"""What happens when in a round."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.schedule.local_steps import aggregations, training_aggregations
from sfumato.spec.training import Training


def short(found):
    return [(a.step, a.tier, a.local_steps) for a in found]


def test_h2fdps_default_round():
    """Edge aggregations at 5, 10, 15; at 20 only the global one happens."""
    assert short(aggregations(20, [5])) == [(5, 1, 5), (10, 1, 5), (15, 1, 5), (20, 0, 5)]


def test_the_highest_tier_that_is_due_goes_alone():
    assert short(aggregations(20, [10, 5])) == [(5, 2, 5), (10, 1, 5), (15, 2, 5), (20, 0, 5)]


def test_periods_that_do_not_divide_the_round():
    assert short(aggregations(10, [4])) == [(4, 1, 4), (8, 1, 4), (10, 0, 2)]


@pytest.mark.parametrize("periods", [[], [7], [9, 7]])
def test_no_period_within_the_round_leaves_the_global_one(periods):
    assert short(aggregations(7, periods)) == [(7, 0, 7)]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.lists(st.integers(1, 40), max_size=3))
def test_every_step_is_in_exactly_one_message(steps, periods):
    found = aggregations(steps, periods)
    assert sum(a.local_steps for a in found) == steps
    assert [a.tier for a in found].count(0) == 1
    assert found[-1].tier == 0
    assert found[-1].step == steps
    assert all(a.step % periods[a.tier - 1] == 0 for a in found[:-1])


def training(**work):
    return Training(rounds=1, batch_size=1, learning_rate=0.1, **work)


def test_of_training():
    assert short(training_aggregations(training(local_steps=20, edge_every=5), 2))[0] == (5, 1, 5)
    assert short(training_aggregations(training(local_steps=20), 2)) == [(20, 0, 20)]
    assert short(training_aggregations(training(local_steps=20, aggregate_every=(10, 5)), 3))[0] == (5, 2, 5)
    assert short(training_aggregations(training(local_steps=8), 1)) == [(8, 0, 8)]


def test_epochs_are_one_piece_of_work():
    assert short(training_aggregations(training(local_epochs=5), 3)) == [(1, 0, 1)]


def test_titles():
    edge, *_, last = aggregations(20, [5])
    assert edge.title(["cloud", "edge"]) == "edge aggregation at step 5"
    assert last.title(["cloud", "edge"]) == "global aggregation at step 20"
