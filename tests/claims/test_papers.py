"""Places and errors of papers: how sentences write them, and what pages say of them."""

import pytest

from sfumato.claims.papers import ERRORS, NAMED, PLACES, entry_of


@pytest.mark.parametrize(
    ("sentence", "place"),
    [
        ("PFELS's Theorem 3 is proved for ε below 0.2", "Thm. 3"),
        ("DP-OGL Thm. 1 (17), counts", "Thm. 1 (17)"),
        ("(17) counts 3 releases", "Thm. 1 (17)"),
        ("(18) rounds 5/2 down", "Thm. 1 (18)"),
        ("Theorem 1, (17)", "Thm. 1 (17)"),
        ("releases, counts × RDP.", "counts × RDP"),
        ("releases, 2π²α/σ² does not hold", "2π²α/σ²"),
        ("Example 2, (26)", "(26)"),
        ("Example 3, (27)", "(27)"),
        ("in rounds in which (20) sets β", "(20)"),
        ("the limit on the amplitude by (20)", "(20)"),
    ],
)
def test_all_ways_to_write_a_place_have_one_entry(sentence: str, place: str) -> None:
    (found,) = NAMED.findall(sentence)
    assert entry_of(found) == entry_of(place)


def test_errors_that_studies_name_are_known() -> None:
    for said, label in (
        ("with momentum (P5).", "P5"),
        ("the same noise (D5), so", "D5"),
        ("network (H7).", "H7"),
    ):
        assert NAMED.findall(said) == [label]
        assert entry_of(label)[0] == label


def test_no_two_places_have_one_text() -> None:
    assert len(set(PLACES.values())) == len(PLACES)
    assert all(entry_of(name) == (name, says) for name, says in ERRORS.items())
