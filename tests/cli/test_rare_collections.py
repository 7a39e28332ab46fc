"""`account` looks for cycles of objects rarely, and leaves the collector as it was."""

from __future__ import annotations

import gc

import pytest

from sfumato import accounting
from sfumato.cli import main


@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_is_as_before_after_an_account(fails, monkeypatch):
    met = []
    real = accounting.account

    def account(*given, **named):
        met.append((gc.get_threshold(), gc.get_freeze_count()))
        if fails:
            raise OSError("no space")
        return real(*given, **named)

    monkeypatch.setattr(accounting, "account", account)
    before = gc.get_threshold()
    assert main(["account", "quickstart", "--json"]) == int(fails)
    [(during, frozen)] = met
    assert during[0] > before[0]
    assert during[1:] == before[1:]
    assert frozen > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
