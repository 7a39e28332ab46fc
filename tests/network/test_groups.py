import json

import networkx as nx
import numpy as np
import pytest

from sfumato.errors import SpecError
from sfumato.network.group_graph import from_graph
from sfumato.network.groups import all_together, by_label, clusters, listed, ring, string, trusted_masters
from sfumato.spec.topology import Trust


def lists(groups):
    return [list(members) for members in groups.as_lists()]


def test_a_ring_of_four_over_a_hundred_as_the_paper_has_it():
    groups = ring(100, 4)
    assert groups.sizes.tolist() == [26, 26, 26, 26]
    assert lists(groups)[0] == list(range(26))
    assert lists(groups)[3] == [0, *range(75, 100)]
    expected = [[26, 1, 0, 1], [1, 26, 1, 0], [0, 1, 26, 1], [1, 0, 1, 26]]
    np.testing.assert_array_equal(groups.shared.toarray(), expected)
    np.testing.assert_array_equal(groups.distances, [[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]])
    assert np.flatnonzero(groups.memberships == 2).tolist() == [0, 25, 50, 75]
    assert groups.groups_of(25).tolist() == [0, 1]
    assert groups.groups_of(0).tolist() == [0, 3]
    classes = groups.classes
    assert sorted(classes.counts.tolist()) == [1] * 4 + [24] * 4
    assert [list(own) for own in classes.groups][:2] == [[0, 3], [0]]
    averaging = classes.averaging(4)
    np.testing.assert_array_equal(averaging[classes.class_of[25]], [0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(averaging[classes.class_of[60]], [0, 0, 1, 0])


def test_structures_by_hand():
    assert lists(all_together(3)) == [[0, 1, 2]]
    assert lists(clusters(6, 3)) == [[0, 1], [2, 3], [4, 5]]
    assert lists(ring(6, 3)) == [[0, 1, 2], [2, 3, 4], [0, 4, 5]]
    assert lists(string(6, 3)) == [[0, 1, 2], [2, 3, 4], [4, 5]]
    assert lists(string(3, 2)) == [[0, 1], [1, 2]], "the paper's Example 2"
    assert lists(ring(4, 2)) == [[0, 1, 2], [0, 2, 3]]
    assert lists(ring(5, 1)) == [[0, 1, 2, 3, 4]]
    counts = np.array([[3, 0, 0, 0], [0, 1, 0, 1], [0, 0, 9, 0], [1, 1, 0, 0]])
    assert lists(by_label(counts, 2)) == [[0, 2, 3], [1, 3]]
    assert lists(listed([[2, 1], [0, 1]])) == [[1, 2], [0, 1]]


def test_groups_that_do_not_divide_evenly_differ_by_one():
    assert clusters(10, 3).sizes.tolist() == [3, 3, 4]
    assert ring(10, 3).sizes.tolist() == [4, 4, 5]
    assert lists(string(10, 3)) == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]


@pytest.mark.parametrize(("workers", "count"), [(12, 3), (100, 10), (41, 4), (7, 6), (30, 29)])
def test_every_ring_shares_exactly_one_worker_between_neighbours(workers, count):
    shared = ring(workers, count).shared.toarray()
    for group in range(count):
        for other in range(count):
            apart = min((group - other) % count, (other - group) % count)
            if apart:
                assert shared[group, other] == (apart == 1)


def test_disconnected_groups_are_infinitely_far_apart():
    assert np.isinf(clusters(8, 2).distances[0, 1])


@pytest.mark.parametrize(
    ("build", "place", "words"),
    [
        (lambda: listed([[0, 1], [3, 1]]), "topology.groups", "worker 2 is in no group"),
        (lambda: listed([[0, 1], [1, 2]], 6), "topology.groups", r"worker 3 \(and 2 more\) is in no group"),
        (lambda: listed([[0, 1], [2]]), "topology.groups[1]", "only worker 2"),
        (lambda: listed([[0, 1], []]), "topology.groups[1]", "at least two"),
        (lambda: listed([]), "topology.groups", "at least two"),
        (lambda: listed([[0, 1], [1, 7]], 3), "topology.groups[1]", "is no worker"),
        (lambda: listed([[0, 1], [1, 1]], 2), "topology.groups[1]", "once"),
        (lambda: listed([[0, 1], [1, 10**12]]), "topology.groups", "at most"),
        (lambda: ring(3, 4), "topology.groups", "at most 3"),
        (lambda: string(4, 4), "topology.groups", "only worker 3"),
        (lambda: clusters(5, 3), "topology.groups", "only worker 0"),
        (lambda: all_together(1), "topology.devices", "only worker 0"),
        (lambda: by_label(np.eye(4, dtype=int), 5), "topology.groups", "at most 4"),
        (lambda: by_label(np.array([[1, 0], [0, 0], [1, 1]]), 2), "topology.groups", "only worker 2"),
        (
            lambda: by_label(np.array([[1, 0], [0, 0], [1, 1], [0, 1]]), 2),
            "topology.groups",
            "worker 1 is in",
        ),
    ],
)
def test_structures_that_are_refused(build, place, words):
    with pytest.raises(SpecError, match=words) as caught:
        build()
    assert caught.value.place == place


def bipartite():
    graph = nx.Graph()
    graph.add_edges_from([("master:0", "device:0"), ("master:0", "device:1")])
    graph.add_edges_from([("master:1", "device:1"), ("device:2", "master:1")])
    return graph


def write(graph, path):
    if path.suffix == ".json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")), "utf-8")
    elif path.suffix == ".graphml":
        nx.write_graphml(graph, path)
    else:
        nx.write_edgelist(graph, path, data=False)
    return path


@pytest.mark.parametrize("name", ["graph.json", "graph.graphml", "graph.edges"])
def test_a_bipartite_graph_says_who_is_in_which_group(tmp_path, name):
    groups = from_graph(write(bipartite(), tmp_path / name))
    assert lists(groups) == [[0, 1], [1, 2]]


@pytest.mark.parametrize("name", ["graph.json", "graph.graphml", "graph.edges"])
def test_the_edges_of_a_group_graph_are_shared_workers(tmp_path, name):
    groups = from_graph(write(nx.path_graph(3), tmp_path / name), 9)
    assert lists(groups) == [[0, 2, 3, 4], [0, 1, 5, 6], [1, 7, 8]]
    np.testing.assert_array_equal(groups.distances, nx.floyd_warshall_numpy(nx.path_graph(3)))


def test_older_node_link_files_are_read_too(tmp_path):
    path = tmp_path / "old.json"
    path.write_text(json.dumps(nx.node_link_data(bipartite(), edges="links")), "utf-8")
    assert lists(from_graph(path)) == [[0, 1], [1, 2]]


def test_graphs_that_are_refused(tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{", "utf-8")
    empty = tmp_path / "empty.edges"
    empty.write_text("", "utf-8")
    mixed = bipartite()
    mixed.add_edge("master:1", "phone")
    same = bipartite()
    same.add_edge("master:0", "master:1")
    gap = nx.Graph([("master:1", "device:0"), ("master:1", "device:1")])
    loop = nx.path_graph(3)
    loop.add_edge(1, 1)
    for path, workers, place, words in [
        (tmp_path / "absent.json", None, "topology.file", "cannot be read"),
        (broken, None, "topology.file", "is not JSON"),
        (empty, None, "topology.file", "no node"),
        (write(mixed, tmp_path / "mixed.json"), None, "topology.file", "device:N or master:M"),
        (write(same, tmp_path / "same.json"), None, "topology.file", "join a device and a master"),
        (write(gap, tmp_path / "gap.json"), None, "topology.file", "without gaps"),
        (write(loop, tmp_path / "loop.json"), 9, "topology.file", "itself"),
        (write(bipartite(), tmp_path / "few.json"), 2, "topology.groups", "is no worker"),
        (write(nx.path_graph(3), tmp_path / "path.json"), None, "topology.devices", "required"),
        (write(nx.cycle_graph(5), tmp_path / "cycle.json"), 4, "topology.devices", "at least 5"),
        (write(nx.path_graph(3), tmp_path / "thin.json"), 3, "topology.groups", "only worker 1"),
    ]:
        with pytest.raises(SpecError, match=words) as caught:
            from_graph(path, workers)
        assert caught.value.place.startswith(place)


def test_masters_are_trusted_unless_the_spec_says_otherwise():
    groups = ring(12, 4)
    marks = lambda **trust: trusted_masters(groups, Trust(**trust), seed=1).tolist()  # noqa: E731
    assert marks() == [True] * 4
    assert marks(trusted=("master:2",)) == [False, False, True, False]
    assert marks(trusted_aggregators=()) == [False] * 4
    assert marks(trusted_aggregators=0.0) == [False] * 4
    assert marks(trusted_aggregators=(0, 3)) == [True, False, False, True]
    assert marks(trusted_aggregators=(0,), trusted=("master:1",)) == [True, True, False, False]
    assert sum(marks(trusted_aggregators=0.5)) == 2
    assert marks(trusted_aggregators=0.5) == marks(trusted_aggregators=0.5)


@pytest.mark.parametrize(
    ("trust", "place"),
    [
        ({"trusted": ("master:4",)}, "trust.trusted"),
        ({"trusted": ("edge:0",)}, "trust.trusted"),
        ({"trusted_aggregators": (4,)}, "trust.trusted_aggregators"),
        ({"cloud": True}, "trust.cloud"),
        ({"trusted_edges": 0.5}, "trust.trusted_edges"),
    ],
)
def test_trust_in_nobody_there_is_refused(trust, place):
    with pytest.raises(SpecError) as caught:
        trusted_masters(ring(12, 4), Trust(**trust), seed=1)
    assert caught.value.place == place


def test_ten_thousand_workers_are_quick_to_describe():
    groups = ring(10_000, 100)
    assert len(groups.classes.counts) == 200
    assert groups.distances.max() == 50
