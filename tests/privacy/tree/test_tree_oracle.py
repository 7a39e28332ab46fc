"""The ledger of a tree against a brute-force oracle (tiered_oracle.py): sound always, exact where it says so.

Flow. For every view the ledger's charge, as a quadratic form in the unit's pieces, dominates the form of the
exposed messages with all other contributions known; so it holds for vectors of any length and for pieces that
pull in any direction, not only for aligned scalars. It is the exact form once the hidden averages of *other*
subtrees are exposed too. The gap to the smaller exposed set is noise that entered those averages: devices
there started from it and may cancel it, so it must not be counted.

Cut. The charge is never below the shift of what is seen, with everybody moved whose input depends on the
unit, over the noise of that very step.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_oracle import Round, charged, coalitions, draws, ledgers, make_ledger, mixed_ledgers

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.facts import AggregationFacts

FEW = settings(derandomize=True)  # 100 examples; 400 in make test-slow


def form_charged(ledger, unit, exposure):
    """The flow charge as a quadratic form in the unit's pieces."""
    leaf = ledger.leaf_of(unit)
    form = np.zeros((len(ledger.steps),) * 2)
    for k, (facts, release) in enumerate(zip(ledger.steps, exposure.releases, strict=True)):
        row = np.zeros(len(ledger.steps))
        row[: k + 1 if facts.resends[leaf] else None] = 1.0
        if not facts.resends[leaf]:
            row[:] = 0.0
            row[k] = 1.0
        form += (
            np.outer(row, row) * (release.own_sensitivity / facts.message_norm[leaf]) ** 2 / release.variance
        )
    return form


@st.composite
def cases(draw, **options):
    ledger = draw(ledgers(**options))
    unit = draw(st.integers(0, ledger.device_count - 1))
    coalition = draw(coalitions(ledger, unit)) if ledger.device_count + ledger.depth > 1 else ()
    return ledger, unit, coalition, draw(draws(ledger, unit))


def worst_draw(ledger, unit, coalition, drawn):
    """The cohort with the unit in it that leaves the least noise: members first; nobody under Poisson."""
    if ledger.draw_kind == "all" and ledger.guaranteed_contributors is None:
        return drawn
    if ledger.draw_kind == "poisson":
        return [unit]
    members = {p.index for p in coalition if p.kind == "device"}
    loud = Round(ledger).weights * Round(ledger).loud
    sure = ledger.drawn if ledger.guaranteed_contributors is None else ledger.guaranteed_contributors
    chosen = []
    for leaf, count in enumerate(sure):
        here = range(int(ledger.first_device[leaf]), int(ledger.first_device[leaf + 1]))
        chosen += sorted(here, key=lambda j: (j != unit, j not in members, loud[j]))[: int(count)]
    return chosen


@FEW
@given(cases())
def test_the_flow_charge_dominates_what_the_exposed_messages_tell(case):
    ledger, unit, coalition, drawn = case
    flow = ledger.exposures(unit, coalition)[0]
    if not np.isfinite(charged(flow)).all():
        return
    game = Round(ledger, drawn)
    exposed = game.seen(coalition) + game.hidden_averages(unit)
    form, bare = game.form(unit, exposed, coalition)
    assert np.abs(bare).max(initial=0.0) < 1e-7, "a direction without protection, but a finite charge"
    ours = form_charged(ledger, unit, flow)
    assert np.linalg.eigvalsh(ours - form).min() >= -1e-8 * np.trace(ours)


@FEW
@given(cases())
def test_each_flow_release_is_exactly_what_its_step_tells(case):
    ledger, unit, coalition, drawn = case
    flow = ledger.exposures(unit, coalition)[0]
    game = Round(ledger, worst_draw(ledger, unit, coalition, drawn))
    exposed = game.seen(coalition) + game.hidden_averages(unit)
    truth = [game.charge_of_step(unit, k, exposed, coalition) for k in range(len(ledger.steps))]
    assert charged(flow) == pytest.approx(truth, rel=1e-9)


@FEW
@given(cases(kinds=("all",)))
def test_the_flow_form_is_exact_once_all_averages_are_exposed(case):
    ledger, unit, coalition, drawn = case
    flow = ledger.exposures(unit, coalition)[0]
    if not np.isfinite(charged(flow)).all():
        return
    game = Round(ledger, drawn)
    form, _ = game.form(unit, game.seen(coalition) + game.all_averages(), coalition)
    ours = form_charged(ledger, unit, flow)
    np.testing.assert_allclose(form, ours, rtol=1e-7, atol=1e-9 * np.trace(ours))


@FEW
@given(cases(), st.integers(0, 2**32 - 1))
def test_the_cut_charge_is_never_below_what_is_seen(case, seed):
    ledger, unit, coalition, drawn = case
    cut = ledger.exposures(unit, coalition)[1]
    game = Round(ledger, drawn)
    corners = np.random.default_rng(seed).choice([-1.0, 1.0], (ledger.device_count, len(ledger.steps)))
    for signs in (None, corners):
        seen = game.cut(unit, coalition, signs)
        assert len(seen) == len(cut.releases)
        for ours, truth in zip(charged(cut), seen.values(), strict=True):
            assert ours >= truth * (1 - 1e-9)


@FEW
@given(cases(kinds=("all", "fixed"), uniform=True, resend=False))
def test_the_cut_charge_is_exact_where_all_messages_have_one_bound(case):
    ledger, unit, coalition, drawn = case
    cut = ledger.exposures(unit, coalition)[1]
    game = Round(ledger, worst_draw(ledger, unit, coalition, drawn))
    assert charged(cut) == pytest.approx(list(game.cut(unit, coalition).values()), rel=1e-9)


@FEW
@given(cases(), st.data())
def test_a_larger_coalition_never_learns_less(case, data):
    ledger, unit, coalition, _ = case
    parties = [Party("node", t, i) for t, p in enumerate(ledger.parents) for i in range(len(p))]
    parties += [Party("device", 0, j) for j in range(ledger.device_count) if j != unit]
    larger = (*coalition, data.draw(st.sampled_from(parties)))
    for mine, more in zip(ledger.exposures(unit, coalition), ledger.exposures(unit, larger), strict=True):
        if mine.bound_name == "flow":
            assert sum(charged(more)) >= sum(charged(mine)) * (1 - 1e-9)


# --- sums, the air, devices that differ, and who may be missing ----------------------------------------


@st.composite
def mixed_cases(draw, **options):
    ledger = draw(mixed_ledgers(**options))
    unit = draw(st.integers(0, ledger.device_count - 1))
    return ledger, unit, draw(coalitions(ledger, unit))


@FEW
@given(mixed_cases())
def test_sums_and_classes_are_charged_exactly(case):
    ledger, unit, coalition = case
    flow, cut = ledger.exposures(unit, coalition)
    game = Round(ledger, worst_draw(ledger, unit, coalition, range(ledger.device_count)))
    truth = game.charge_of_step(unit, 0, game.seen(coalition), coalition)
    assert charged(flow) == pytest.approx([truth], rel=1e-9)
    assert charged(cut) == pytest.approx([truth], rel=1e-9)


@FEW
@given(mixed_cases(), st.data())
def test_a_larger_coalition_never_learns_less_of_sums(case, data):
    """With another member a sum may be taken apart, but never hides more."""
    ledger, unit, coalition = case
    parties = [Party("node", t, i) for t, p in enumerate(ledger.parents) for i in range(len(p))]
    parties += [Party("device", 0, j) for j in range(ledger.device_count) if j != unit]
    larger = (*coalition, data.draw(st.sampled_from(parties)))
    fewer, more = (charged(ledger.exposures(unit, members)[0])[0] for members in (coalition, larger))
    assert more >= fewer * (1 - 1e-9)


@FEW
@given(mixed_cases(kinds=("all",)), st.data())
def test_a_sum_tells_no_more_than_its_messages(case, data):
    ledger, unit, coalition = case
    single = replace(ledger, hops=("plain",) * ledger.depth)
    summed, apart = ledger.exposures(unit, coalition)[0], single.exposures(unit, coalition)[0]
    assert charged(summed)[0] <= charged(apart)[0] * (1 + 1e-9)


@FEW
@given(mixed_cases(kinds=("all",)), st.data())
def test_the_fewest_survivors_of_a_threshold_are_counted_on(case, data):
    """Whoever drops out, as long as ``least`` are left: exact for the worst survivors, enough for others."""
    ledger, unit, coalition = case
    least = np.array([data.draw(st.integers(1, int(n))) for n in ledger.devices])
    ledger = replace(ledger, guaranteed_contributors=least)
    flow = ledger.exposures(unit, coalition)[0]
    game = Round(ledger, worst_draw(ledger, unit, coalition, ()))
    truth = game.charge_of_step(unit, 0, game.seen(coalition), coalition)
    assert charged(flow) == pytest.approx([truth], rel=1e-9)
    survivors = {unit}
    for leaf, count in enumerate(least):
        here = range(int(ledger.first_device[leaf]), int(ledger.first_device[leaf + 1]))
        order = data.draw(st.permutations([j for j in here if j != unit]))
        survivors |= set(order[: data.draw(st.integers(int(count) - (unit in here), len(order)))])
    other = Round(ledger, survivors)
    assert other.charge_of_step(unit, 0, other.seen(coalition), coalition) <= charged(flow)[0] * (1 + 1e-9)


@FEW
@given(mixed_cases(kinds=("all",)), st.data())
def test_zones_that_may_send_nothing_are_not_counted_on(case, data):
    ledger, unit, coalition = case
    ledger = replace(ledger, all_nodes_always_send=False)
    flow = ledger.exposures(unit, coalition)[0]
    here = ledger.leaf_of(unit)
    others = [leaf for leaf in range(len(ledger.devices)) if leaf != here]
    absent = data.draw(st.sets(st.sampled_from(others))) if others else set()
    for missing in (absent, set(others)):
        game = Round(ledger, absent=missing)
        met = game.charge_of_step(unit, 0, game.seen(coalition), coalition)
        assert met <= charged(flow)[0] * (1 + 1e-9)


def test_the_gap_of_the_flow_bound_is_noise_that_others_may_cancel():
    """Two edges of one device; only the other edge's hidden noise is large. The public meets the sum."""
    one, none = np.ones(2), np.zeros(1)
    quiet_loud = np.array([1.0, 3.0])
    steps = [
        AggregationFacts("edge", 1, one, np.zeros(2), (none, quiet_loud), np.zeros(2, dtype=bool)),
        AggregationFacts("global", 0, one, np.zeros(2), (none, one), np.zeros(2, dtype=bool)),
    ]
    ledger = make_ledger([[2], [1, 1]], steps)
    flow = ledger.exposures(0, (Party("public"),))[0]
    assert charged(flow) == pytest.approx([1.0, 0.25 / 0.5])
    game = Round(ledger)
    exposed = game.seen((Party("public"),)) + game.hidden_averages(0)
    form, _ = game.form(0, exposed, (Party("public"),))
    # Everybody's contribution fixed beforehand: the other edge's 3^2 would count too.
    assert form.sum() == pytest.approx(1.0 + 0.25 / ((1 + 1 + 9) / 4))
    assert sum(charged(flow)) == pytest.approx(1.5)
