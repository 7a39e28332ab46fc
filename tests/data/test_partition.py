import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_rules import partition_rule

from sfumato.data.builtin_datasets import BUILT_IN
from sfumato.data.partition import partition, partition_sizes, planned_label_counts, uses_every_row
from sfumato.data.split_counts import ClassSplitPlan, apportion
from sfumato.errors import SpecError
from sfumato.spec.load import load_spec

IID = partition_rule()
# Machines are shared; a slow moment is not a failure.
no_deadline = settings(deadline=None)
seeds = st.integers(0, 2**31)
class_counts = st.lists(st.integers(0, 90), min_size=2, max_size=7).filter(lambda counts: sum(counts) > 60)
edge_lists = st.lists(st.integers(1, 8), min_size=1, max_size=5)


def labelled(counts):
    """Labels [N] with these class counts, in mixed order."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))


def check(labels, devices_per_edge, rule, seed, groups=None):
    """Whatever the rule: rows are disjoint, the seed fixes them, and counts alone give the sizes."""
    made = partition(labels, devices_per_edge, rule, seed=seed, groups=groups)
    assert made.devices == sum(devices_per_edge)
    assert len(np.unique(made.rows)) == len(made.rows) == made.sizes.sum()
    again = partition(labels, devices_per_edge, rule, seed=seed, groups=groups)
    np.testing.assert_array_equal(made.rows, again.rows)
    np.testing.assert_array_equal(made.offsets, again.offsets)
    counts = {
        "examples": len(labels),
        "seed": seed,
        "class_counts": np.bincount(labels).tolist(),
        "group_counts": None if groups is None else np.bincount(groups).tolist(),
    }
    predicted = partition_sizes(rule, devices_per_edge, **counts)
    if predicted is not None:
        np.testing.assert_array_equal(predicted, made.sizes)
    if uses_every_row(rule):
        assert made.sizes.sum() == len(labels)
    return made


def labels_held(made, labels):
    return [np.unique(labels[made.indices(device)]) for device in range(made.devices)]


@no_deadline
@given(st.integers(0, 1_000), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_apportion_is_within_one_of_the_exact_share(total, weights):
    shares = apportion(total, np.array(weights))
    assert shares.sum() == total
    exact = total * np.array(weights) / sum(weights)
    assert np.abs(shares - exact).max() < 1


@no_deadline
@given(st.integers(40, 300), edge_lists, seeds)
def test_iid_is_equal_as_far_as_it_divides(examples, edges, seed):
    made = check(np.zeros(examples, np.int64), edges, IID, seed)
    assert made.sizes.max() - made.sizes.min() <= 1


def test_another_seed_is_another_partition():
    labels = labelled([100] * 10)
    for rule in (IID, partition_rule("labels", labels_per_device=3), partition_rule("dirichlet", alpha=0.5)):
        one, two = (partition(labels, [20], rule, seed=seed) for seed in (0, 1))
        assert not np.array_equal(one.rows, two.rows)


@no_deadline
@given(st.floats(0.1, 2), seeds)
def test_lognormal_sizes_spread_but_leave_nobody_out(sigma, seed):
    made = check(np.zeros(500, np.int64), [60], partition_rule(size_sigma=sigma), seed)
    assert made.sizes.min() >= 1


def test_lognormal_sizes_follow_sigma():
    rule = partition_rule(size_sigma=1.0)
    sizes = partition_sizes(rule, [2_000], examples=2_000_000, seed=0)
    assert sizes is not None
    assert np.log(sizes).std() == pytest.approx(1, rel=0.1)


@no_deadline
@given(
    st.lists(st.integers(60, 90), min_size=1, max_size=7),
    st.integers(1, 60),
    st.integers(1, 7),
    seeds,
)
def test_labels_are_exactly_so_many_and_evenly_spread(counts, devices, each, seed):
    labels = labelled(counts)
    each = min(each, len(counts))
    made = check(labels, [devices], partition_rule("labels", labels_per_device=each), seed)
    held = labels_held(made, labels)
    assert {len(own) for own in held} == {each}
    if devices * each >= len(counts):
        assert len(made.rows) == len(labels)
    per_label = np.bincount(np.concatenate(held), minlength=len(counts))
    assert per_label.max() - per_label.min() <= 1
    for label in range(len(counts)):
        shards = [np.count_nonzero(labels[made.indices(d)] == label) for d in range(devices)]
        shards = [size for size in shards if size]
        assert not shards or max(shards) - min(shards) <= 1


@pytest.mark.parametrize(
    ("counts", "devices", "each", "shard", "holders"),
    [([6_000] * 10, 50, 3, 400, 15), ([6_000] * 10, 10, 10, 600, 10), ([120] * 10, 200, 3, 2, 60)],
)
def test_labels_divide_exactly_where_they_can(counts, devices, each, shard, holders):
    labels = labelled(counts)
    made = check(labels, [devices], partition_rule("labels", labels_per_device=each), 0)
    assert set(made.sizes) == {each * shard}
    held = np.concatenate(labels_held(made, labels))
    assert set(np.bincount(held)) == {holders}


def test_quickstarts_digits():
    rule = partition_rule("labels", labels_per_device=3)
    counts = BUILT_IN["digits"].facts.class_counts
    assert counts is not None
    labels = labelled(counts)
    made = check(labels, [40] * 5, rule, 0)
    assert len(made.rows) == 1_437
    held = labels_held(made, labels)
    assert set(np.bincount(np.concatenate(held))) == {60}
    # Balanced, but not in a pattern: nearly every combination of 3 of 10 labels occurs.
    assert len({tuple(own) for own in held}) > 75


def test_more_labels_than_exist():
    labels = labelled([50] * 4)
    with pytest.raises(SpecError, match="at most 4") as caught:
        partition(labels, [5], partition_rule("labels", labels_per_device=5), seed=0)
    assert caught.value.place == "data.partition.labels_per_device"


def test_shards_must_go_round():
    rule = partition_rule("labels", labels_per_device=3)
    with pytest.raises(SpecError, match="do not go round") as caught:
        partition(labelled([100] * 10), [500], rule, seed=0)
    assert caught.value.place == "data.partition.labels_per_device"
    allowed = partition_rule("labels", labels_per_device=3, empty_devices="allow")
    assert len(check(labelled([100] * 10), [500], allowed, 0).rows) == 1_000


@no_deadline
@given(
    class_counts,
    st.integers(1, 20),
    st.floats(0.01, 100),
    st.integers(0, 3),
    seeds,
)
def test_dirichlet_uses_everything_and_keeps_its_floor(counts, devices, alpha, floor, seed):
    allow = "allow" if floor == 0 else "refuse"
    rule = partition_rule("dirichlet", alpha=alpha, min_examples=floor, empty_devices=allow)
    made = check(labelled(counts), [devices], rule, seed)
    assert len(made.rows) == sum(counts)
    assert made.sizes.min() >= floor


def test_dirichlet_alpha_orders_heterogeneity():
    labels = labelled([6_000] * 10)

    def largest_share(alpha):
        made = partition(labels, [100], partition_rule("dirichlet", alpha=alpha), seed=0)
        return np.mean([np.bincount(labels[made.indices(d)]).max() / made.sizes[d] for d in range(100)])

    shares = [largest_share(alpha) for alpha in (0.05, 0.5, 5, 500)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.7
    assert shares[-1] < 0.15


def test_dirichlet_floor_that_cannot_be():
    with pytest.raises(SpecError, match="at most 10") as caught:
        partition(labelled([50] * 2), [10], partition_rule("dirichlet", alpha=1, min_examples=11), seed=0)
    assert caught.value.place == "data.partition.min_examples"


@no_deadline
@given(
    class_counts,
    st.integers(1, 20),
    st.integers(0, 20),
    st.floats(0.01, 100),
    seeds,
)
def test_devices_hold_the_first_shards_of_a_division_into_more(counts, devices, others, alpha, seed):
    """Row by row what these devices hold where all shards have one; no row is on two devices."""
    rule = {"alpha": alpha, "empty_devices": "refuse"}
    every = partition(labelled(counts), [devices + others], partition_rule("dirichlet", **rule), seed=seed)
    first = partition_rule("dirichlet", shards=devices + others, **rule)
    made = partition(labelled(counts), [devices], first, seed=seed)
    for device in range(devices):
        np.testing.assert_array_equal(made.indices(device), every.indices(device))
    assert len(np.unique(made.rows)) == len(made.rows) == every.sizes[:devices].sum()
    told = {"examples": sum(counts), "class_counts": counts, "seed": seed}
    np.testing.assert_array_equal(partition_sizes(first, [devices], **told), made.sizes)
    table = planned_label_counts(first, devices, counts, seed=seed)
    np.testing.assert_array_equal(table.sum(axis=1), made.sizes)
    assert uses_every_row(partition_rule("dirichlet", **rule))
    assert not uses_every_row(first)


@pytest.mark.parametrize("level", ["edge", "device"])
def test_shards_are_of_one_division_of_all_rows(level):
    shards = {"kind": "dirichlet", "alpha": 1.0, "shards": 9}
    levels = {"edge": {"kind": "iid"}, "device": {"kind": "iid"}, level: shards}
    if level == "device":
        levels["edge"] = {"kind": "labels", "labels_per_device": 1}
    rule, rows = partition_rule("two-level", **levels), labelled([50] * 3)
    with pytest.raises(SpecError, match="goes with one division of all examples") as caught:
        partition(rows, [2, 2], rule, seed=0)
    assert caught.value.place == f"data.partition.{level}.shards"
    alone = partition_rule("dirichlet", alpha=1.0, shards=9)
    with pytest.raises(SpecError, match="goes with one division"):
        partition(rows, [2, 2], alone, seed=0, sites=np.arange(150) % 2)
    with pytest.raises(SpecError, match="goes with one division"):
        partition_sizes(alone, [2, 2], examples=150, seed=0, site_counts=[75, 75])
    with pytest.raises(SpecError, match="must be at least 10, the number of devices") as caught:
        partition(rows, [10], alone, seed=0)
    assert caught.value.place == "data.partition.shards"


@no_deadline
@given(st.integers(8, 40), st.integers(1, 8), st.integers(20, 300), seeds)
def test_natural_groups_stay_whole(groups, devices, examples, seed):
    labels = np.zeros(examples + groups, np.int64)
    owner = np.concatenate([np.arange(groups), np.random.default_rng(seed).integers(groups, size=examples)])
    made = check(labels, [devices], partition_rule("natural"), seed, owner)
    assert len(made.rows) == len(labels)
    held = [set(owner[made.indices(device)].tolist()) for device in range(devices)]
    assert sum(map(len, held)) == groups
    assert max(map(len, held)) - min(map(len, held)) <= 1


def test_natural_one_group_a_device_of_those_large_enough():
    sizes = np.arange(1, 41)
    owner = np.repeat(np.arange(40), sizes)
    rule = partition_rule("natural", groups_per_device=1, min_examples=10)
    made = check(np.zeros(len(owner), np.int64), [12], rule, 3, owner)
    held = [np.unique(owner[made.indices(device)]) for device in range(12)]
    assert {len(own) for own in held} == {1}
    assert made.sizes.min() >= 10
    np.testing.assert_array_equal(made.sizes, [sizes[own[0]] for own in held])


def test_natural_needs_groups_and_enough_of_them():
    labels = np.zeros(100, np.int64)
    with pytest.raises(SpecError, match="group column"):
        partition(labels, [5], partition_rule("natural"), seed=0)
    owner = np.arange(100) % 4
    with pytest.raises(SpecError, match="at least 5 natural groups for so many devices; there are 4"):
        partition(labels, [5], partition_rule("natural"), seed=0, groups=owner)
    made = check(labels, [5], partition_rule("natural", empty_devices="allow"), 0, owner)
    assert sorted(made.sizes) == [0, 25, 25, 25, 25]


def two_level(edge, device, **options):
    return partition_rule("two-level", edge=edge, device=device, **options)


@no_deadline
@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(1, 4), seeds)
def test_two_levels_edges_hold_few_labels_and_their_devices_share_them(edges, each, seed):
    labels = labelled([80] * 4)
    made = check(labels, edges, two_level(partition_rule("labels", labels_per_device=each), IID), seed)
    bounds = np.concatenate([[0], np.cumsum(edges)])
    per_edge = [made.rows[made.offsets[a] : made.offsets[b]] for a, b in itertools.pairwise(bounds)]
    for own, first, count in zip(per_edge, bounds[:-1], edges, strict=True):
        assert len(np.unique(labels[own])) == each
        sizes = made.sizes[first : first + count]
        assert sizes.max() - sizes.min() <= 1


@no_deadline
@given(st.lists(st.integers(2, 4), min_size=2, max_size=4), seeds)
def test_two_levels_the_other_way_round(edges, seed):
    labels = labelled([200] * 3)
    made = check(labels, edges, two_level(IID, partition_rule("labels", labels_per_device=2)), seed)
    assert {len(own) for own in labels_held(made, labels)} == {2}
    # Every edge is a fair sample: it holds all labels, as many examples as its devices weigh.
    bounds = np.concatenate([[0], np.cumsum(edges)])
    for a, b in itertools.pairwise(bounds):
        own = made.rows[made.offsets[a] : made.offsets[b]]
        assert len(np.unique(labels[own])) == 3
        assert len(own) == pytest.approx(len(labels) * (b - a) / sum(edges), abs=1)


@pytest.mark.parametrize("edge", [IID, partition_rule("dirichlet", alpha=0.3), partition_rule("natural")])
@pytest.mark.parametrize(
    "device",
    [IID, partition_rule("dirichlet", alpha=0.3), partition_rule("natural"), partition_rule(size_sigma=0.5)],
)
def test_two_levels_in_all_combinations(edge, device):
    labels = labelled([300] * 5)
    owner = np.random.default_rng(1).integers(90, size=len(labels))
    made = check(labels, [3, 5, 4], two_level(edge, device), 0, owner)
    assert len(made.rows) == len(labels)


@no_deadline
@given(st.floats(0.02, 1), seeds)
def test_two_levels_uneven_edges_still_feed_all_their_devices(alpha, seed):
    edge = partition_rule("dirichlet", alpha=alpha, min_examples=3)
    made = check(labelled([60] * 5), [2, 30, 8, 20], two_level(edge, IID), seed)
    assert made.sizes.min() >= 3


def test_two_level_sizes_that_only_the_labels_tell():
    rule = two_level(IID, partition_rule("labels", labels_per_device=2))
    counts = {"examples": 600, "seed": 0, "class_counts": [200] * 3}
    assert partition_sizes(rule, [3, 3], **counts) is None
    assert not uses_every_row(rule)
    rule = two_level(IID, partition_rule("dirichlet", alpha=1))
    assert uses_every_row(rule)


def test_more_devices_than_examples():
    labels = labelled([10] * 3)
    rules = [IID, partition_rule("labels", labels_per_device=2), partition_rule("dirichlet", alpha=1)]
    for rule in [*rules, two_level(IID, IID)]:
        with pytest.raises(SpecError, match="10 of 40 devices") as caught:
            partition(labels, [40], rule, seed=0)
        assert caught.value.place == "data.partition.empty_devices"
        with pytest.raises(SpecError, match="10 of 40 devices"):
            partition_sizes(rule, [40], examples=30, seed=0, class_counts=[10] * 3)
    made = check(labels, [40], partition_rule(empty_devices="allow"), 0)
    assert sorted(made.sizes) == [0] * 10 + [1] * 30
    assert made.indices(int(made.sizes.argmin())).size == 0
    labels_rule = partition_rule("labels", labels_per_device=2, empty_devices="allow")
    assert len(check(labels, [40], labels_rule, 0).rows) == 30


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"kind": "random"}, "kind"),
        ({"kind": "labels"}, "labels_per_device"),
        ({"kind": "labels", "labels_per_device": 0}, "labels_per_device"),
        ({"kind": "iid", "labels_per_device": 3}, "labels_per_device"),
        ({"kind": "dirichlet"}, "alpha"),
        ({"kind": "dirichlet", "alpha": 0}, "alpha"),
        ({"kind": "dirichlet", "alpha": 1e308}, "alpha"),
        ({"kind": "dirichlet", "alpha": float("nan")}, "alpha"),
        ({"kind": "dirichlet", "alpha": 1, "min_examples": -1}, "min_examples"),
        ({"kind": "iid", "size_sigma": -1}, "size_sigma"),
        ({"kind": "iid", "size_sigma": float("nan")}, "size_sigma"),
        ({"kind": "natural", "groups_per_device": 0}, "groups_per_device"),
        ({"kind": "iid", "empty_devices": "maybe"}, "empty_devices"),
        ({"kind": "two-level", "edge": "iid"}, "device"),
        ({"kind": "iid", "edge": "iid"}, "edge"),
        ({"kind": "two-level", "edge": "iid", "device": {"kind": "two-level"}}, "device.kind"),
    ],
)
def test_a_spec_says_what_is_wrong_with_a_rule(options, place):
    with pytest.raises(SpecError) as caught:
        load_spec(dump(options))
    assert caught.value.place == f"data.partition.{place}"


def dump(options):
    """The quickstart with another partition."""
    document = load_spec("quickstart").model_dump(mode="json", by_alias=True, exclude_none=True)
    return document | {"data": document["data"] | {"partition": options}}


def test_proportions_are_too_even_to_be_drawn():
    with pytest.raises(SpecError, match="a positive number up to 1e9") as caught:
        partition(labelled([50] * 2), [10], partition_rule("dirichlet", alpha=1e10), seed=0)
    assert caught.value.place == "data.partition.alpha"


def test_a_million_devices():
    edges = [1_000] * 1_000
    sizes = partition_sizes(IID, edges, examples=10_000_000, seed=0)
    assert sizes is not None
    made = partition(np.arange(3_000_000) % 10, edges, IID, seed=0)
    assert made.devices == 1_000_000
    assert set(np.unique(made.sizes)) == {3}
    assert set(np.unique(sizes)) == {10}


@no_deadline
@given(st.integers(1, 6), st.integers(1, 4), seeds)
def test_vectorised_dealing_equals_a_plain_loop(parts, classes, seed):
    table = np.random.default_rng(seed).integers(0, 6, (parts, classes))
    labels = labelled(table.sum(axis=0) + 2)  # two rows of each label stay with nobody
    rows = np.arange(len(labels)) + 100
    dealt = ClassSplitPlan(table).deal(rows, labels, None, np.random.default_rng(seed))

    order = np.random.default_rng(seed).permutation(len(rows))
    stacks = [[rows[n] for n in order if labels[n] == label] for label in range(classes)]
    expected = []
    for part in range(parts):
        for label in range(classes):
            for _ in range(table[part, label]):
                expected.append(stacks[label].pop(0))
    assert dealt.tolist() == expected
