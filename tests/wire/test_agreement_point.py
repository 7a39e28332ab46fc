"""Which byte strings are the same X25519 key."""

import pytest
from repeatable_entropy import repeatable
from transport_parties import other_encodings

from sfumato.wire.errors import MalformedMessageError
from sfumato.wire.keys import KeyPair, agreement_point

DRAW = repeatable(b"agreement points")
BASE = (9).to_bytes(32, "little")


@pytest.mark.parametrize("public", [KeyPair(DRAW(32)).public for _ in range(20)] + [BASE])
def test_all_encodings_of_a_key_have_one_point_and_agree_on_one_secret(public) -> None:
    others, someone = other_encodings(public), KeyPair(DRAW(32))
    assert len({public, *others}) == len(others) + 1
    for other in others:
        assert agreement_point(other) == agreement_point(public)
        assert someone.agree(other) == someone.agree(public)


def test_different_keys_have_different_points() -> None:
    keys = [KeyPair(DRAW(32)).public for _ in range(100)]
    assert len(set(map(agreement_point, keys))) == 100


@pytest.mark.parametrize("number", [0, 1, 2**255 - 19, 2**255 - 18, 2**255 - 20])
def test_keys_of_small_order_are_refused(number) -> None:
    with pytest.raises(MalformedMessageError, match="not a point of X25519"):
        agreement_point(number.to_bytes(32, "little"))
