"""Who has not introduced himself yet: how many are looked at, who is ended, and what a log says of them."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

import pytest

from sfumato.deployment import rare_lines
from sfumato.deployment.newcomers import Newcomers, network_of
from sfumato.deployment.rare_lines import RareLines

TRIALS = 30


def survivors() -> list[bool]:
    """Which of three connections of one host are left, of whom two are looked at, oldest first."""
    handles: list[socket.socket] = []

    def ended(network: str) -> None:
        """As the thread of the connection that is ended does it."""
        (gone,) = [handle for handle in handles if handle not in newcomers._networks]
        newcomers.remove(gone)

    newcomers = Newcomers(2, ended)
    with ExitStack() as opened:
        for _ in range(3):
            ours, theirs = socket.socketpair()
            opened.enter_context(ours)
            opened.enter_context(theirs)
            handles.append(newcomers.add(ours, "192.0.2.7"))
        left = [newcomers.has_introduced_itself(handle) for handle in handles]
        for handle, is_left in zip(handles, left, strict=True):
            if is_left:
                newcomers.remove(handle)
        return left


def test_the_connection_that_is_ended_is_drawn() -> None:
    """A child that is slow is not out for sure when strangers of its network come after it: each of two is
    ended with probability 1/2; this fails by chance with 2^-29."""
    left = [survivors() for _ in range(TRIALS)]
    assert all(sum(one) == 2 and one[2] for one in left)
    assert {one[0] for one in left} == {True, False}


def test_of_networks_that_have_as_many_each_may_lose_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has many networks cannot end the oldest connection for sure."""
    drawn: list[int] = []
    newcomers, handles = Newcomers(3, lambda network: None), dict[socket.socket, int]()

    def choice(some: list[socket.socket]) -> socket.socket:
        drawn.extend(handles[handle] for handle in some)
        return some[-1]

    monkeypatch.setattr(secrets, "choice", choice)
    with ExitStack() as opened:
        for number in range(3):
            ours, theirs = socket.socketpair()
            opened.enter_context(ours)
            opened.enter_context(theirs)
            handles[opened.enter_context(newcomers.add(ours, f"192.0.2.{number}"))] = number
        newcomers._end_one()
    assert drawn == [0, 1, 2]


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_address_counts_for_its_network(host: str, network: str) -> None:
    assert network_of(host) == network


def test_little_is_said_of_each_and_not_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    lines, now = RareLines(said.append, most=3), [0.0]
    monkeypatch.setattr(rare_lines.time, "monotonic", lambda: now[0])
    for number in (0, 0, 1, 1, 2, 3, 4, 0):
        lines.say(number, str(number))
    assert said == ["0", "1", "2"]
    now[0] = rare_lines.QUIET_S
    lines.say(4, "4")
    assert said == ["0", "1", "2", "4"]
