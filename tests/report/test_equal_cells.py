"""A heatmap that would have one colour is a sentence, and what all have in common is said once."""

from __future__ import annotations

import math
from typing import Any

import pytest
from report_factory import guarantee, quickstart_spec

from sfumato.network.tree import star
from sfumato.privacy.guarantee import Guarantee
from sfumato.report.figures.figure import Figure
from sfumato.report.figures.heatmap import guarantees_html
from sfumato.report.results.matrix import Matrix, build_matrix
from sfumato.report.results.network import Network, read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.protection_words import reasons_without_guarantee, unprotected_finding
from sfumato.report.results.spec_sections import partition_in_words


def matrix_of(network: Network, *rows: tuple[str, str, float]) -> Matrix:
    found = [Guarantee.from_dict(guarantee(*row, 1), 1e-5) for row in rows]
    return build_matrix(found, labels_for(network))


def html_of(matrix: Matrix) -> str:
    def place(figure: Figure) -> str:
        return f"<figure>{figure.kind}</figure>"

    return guarantees_html(matrix, 1e-5, "device", place, controlled=False)


@pytest.mark.parametrize(
    ("public", "drawn"),
    [(2.0, False), (2.0000000001, True), (1.0, True), (math.inf, True)],
    ids=["equal", "larger as written", "smaller", "without"],
)
def test_cells_that_are_all_equal_are_one_sentence(public: float, drawn: bool) -> None:
    rows = ("device:0", "cloud", 2.0), ("device:0", "public", public)
    shown = html_of(matrix_of(Network(star(4), {}), *rows))
    assert ("<figure>heatmap</figure>" in shown) == drawn
    said = (
        "A device has an ε of at most 2 towards the cloud and the public (δ = 1e-5), over the whole training"
    )
    assert (said in shown) != drawn
    assert ("<summary>Show the numbers</summary>" in shown) != drawn


def test_without_a_finite_epsilon_the_colours_say_so() -> None:
    assert "<figure>" in html_of(matrix_of(Network(star(4), {}), ("device:0", "cloud", math.inf)))


def test_where_every_class_has_no_guarantee_it_is_all_devices() -> None:
    network = read_network(quickstart_spec())
    both = ("device:0", "cloud", math.inf), ("device:40", "cloud", math.inf)
    assert unprotected_finding(matrix_of(network, *both)) == [
        "without any guarantee: all devices towards the cloud"
    ]
    one = both[0], ("device:40", "cloud", 3.0)
    assert unprotected_finding(matrix_of(network, *one)) == [
        "without any guarantee: 120 devices under edges 0, 2, 3 towards the cloud"
    ]


def test_a_trusted_observer_of_a_cell_does_not_hide_the_reason_of_another() -> None:
    def pair(edge: int, trusted: bool, why: str) -> Guarantee:
        row = guarantee("device:0", f"edge:{edge}", math.inf, why=why, relation="edge elsewhere")
        return Guarantee.from_dict(row | {"trusted": trusted}, 1e-5)

    trusted, other = pair(2, True, "trusted"), pair(3, False, "edge 3 reads raw updates.")
    naming = labels_for(read_network(quickstart_spec()))
    for both in [trusted, other], [other, trusted]:
        matrix = build_matrix(both, naming)
        assert len(matrix.cells) == 1
        (reason,) = reasons_without_guarantee(matrix)
        assert reason.startswith("No guarantee for ")
        assert ": edge 3 reads raw updates." in reason
    assert reasons_without_guarantee(build_matrix([trusted], naming)) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"partition": {"kind": "iid", "size_sigma": 0.0}}, "divided at random"),
        ({"partition": {"kind": "iid", "size_sigma": 0.5}}, "divided at random into unequal shares"),
        ({"partition": {"kind": "labels", "labels_per_device": 1}}, "1 label each"),
        ({"partition": {"kind": "dirichlet", "alpha": 0.1}}, "labels divided by Dirichlet(0.1)"),
        (
            {"partition": {"kind": "dirichlet", "alpha": 0.1, "shards": 100}},
            "labels divided by Dirichlet(0.1) into 100 shards, the first ones used",
        ),
        ({"partition": {"kind": "natural", "column": "writer"}}, "divided by writer"),
        ({"partition": {"kind": "flwr", "partitioner": "PathologicalPartitioner"}}, ""),
        (
            {
                "partition": {
                    "kind": "two-level",
                    "edge": {"kind": "labels", "labels_per_device": 2},
                    "device": {"kind": "iid"},
                }
            },
            "over edges: 2 labels each; inside each: divided at random",
        ),
        ({"partition": {"kind": "iid"}, "site_column": "hospital"}, ""),
        ({}, ""),
    ],
)
def test_how_data_are_divided_is_told_in_words(data: dict[str, Any], said: str) -> None:
    assert partition_in_words({"data": data}) == said
