"""What a party does to the numbers that pass through it, in words: its sheet.

Figures are of the first round: those of clipped gradients follow the learning rate.
"""

from __future__ import annotations

import numpy as np

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.group_terms import GroupTerms
from sfumato.deployment.messages import RoundPosition
from sfumato.deployment.terms import DeploymentTerms
from sfumato.rounding import lower_bound, number
from sfumato.schedule.integer_grid import IntegerGrid

_CLIPPED = {"update": "its update", "step": "every gradient", "example": "the gradient of every example"}
_FIRST = RoundPosition(0, 0)


def duties(terms: CommonTerms, party: int) -> tuple[str, ...]:
    """What party number ``party`` does in every round by the terms, a sentence each."""
    if isinstance(terms, GroupTerms):
        return _of_worker(terms, party) if party < terms.device_count else _of_master(terms, party)
    assert isinstance(terms, DeploymentTerms)
    if party < terms.cloud:
        return (_of_device(terms, party), *_of_coin(terms, party), *_of_parent(terms, party))
    return _of_aggregator(terms, party)


def taking_part(terms: CommonTerms, party: int) -> str:
    """A sentence that ``party`` takes part in the run, with the purpose."""
    return f"{terms.name(party)} takes part in {terms.plan.spec.name}, for: {terms.purpose}."


def whose_keys_were_made(terms: CommonTerms, party: int) -> tuple[str, ...]:
    """Sentences on parties whose secret keys the deployer made, as it declares, and what that means.

    There is always one: also where it made none, and where it does not say. A second one is for a device
    below an aggregator with masks, where so many others there have such keys that the sum hides no message.

    Args:
        terms: of the run.
        party: number of the party that the sentences are for.
    """
    made = terms.made_keys
    if made is None:
        return ("Whose secret keys whoever deployed made is not said.",)
    if not made:
        return ("Every owner made the keys of its own party, as whoever deployed says.",)
    names = ", ".join(map(terms.name, sorted(set(made))))
    said = (f"Whoever deployed made the secret keys of {names}, and can act as them.",)
    if party in terms.heads or not isinstance(terms, DeploymentTerms):  # others have no masks
        return said
    parent = terms.parent(party)
    held = len((terms.children(parent).keys() & set(made)) - {party})
    if not terms.is_masked(parent) or held <= terms.colluders(parent):
        return said
    hides = f"the sum below {terms.name(parent)} hides no message from whoever deployed"
    more = f"Among them are {held:,} others below {terms.name(parent)}: if these side with it, {hides}."
    return (*said, more)


def _of_device(terms: DeploymentTerms, device: int) -> str:
    """A sentence on the clip of ``device`` (a number), its rounding, noise and part in the average."""
    plan, grid, own = terms.plan, terms.grid(_FIRST), np.array([device], np.int64)
    clip = plan.spec.privacy.clip
    assert clip is not None  # what is refused sees to it
    share = float(grid.shares[plan.tree.leaf_of(device)])
    std = float(plan.device_stds_of(0, own)[0])
    weight = float(plan.weights_of(own)[0])
    weighted = "" if weight == 1 else f", weighs its message by {number(weight)}"
    clips = f"{terms.name(device)} clips {_CLIPPED[clip.kind]} to {number(clip.norm)}{weighted}"
    divided = f"its message counts in the global average divided by {number(1 / share)}"
    return f"{clips}, {_encoded(grid, share, std)}; {divided}."


def _of_worker(terms: GroupTerms, worker: int) -> tuple[str, ...]:
    """What a worker does to its message to each of its masters, and where it starts from."""
    plan, masters = terms.plan, terms.parents(worker)
    said = []
    for master in masters:
        position = terms.asked_in(terms.round_after(None), master)
        grid, group, name = terms.grid(position), position.aggregation, terms.name(master)
        share = float(grid.shares[0])
        std = 0.0 if plan.trusted[group] else float(plan.noise_std(position.round)[group])
        clips = f"{terms.name(worker)} clips its update for {name} to {number(plan.bounds[group])}"
        divided = f"it counts in the average of the group divided by {number(1 / share)}"
        said.append(f"{clips}, {_encoded(grid, share, std)}; {divided}. {name} sees it.")
    if len(masters) > 1:
        rounds = f"every {plan.merge_every:,} rounds" if plan.merge_every > 1 else "every round"
        said.append(f"It starts from the mean of its groups' models {rounds}, and sends that mean to nobody.")
    return tuple(said)


def _of_master(terms: GroupTerms, master: int) -> tuple[str, ...]:
    """Sentences on what a group's master does to the sum of messages, and to whom it sends the model."""
    position = terms.asked_in(terms.round_after(None), master)
    grid, workers = terms.grid(position), len(terms.children(master))
    std = terms.noise_steps(master, position) / grid.scale
    noise = f"adds {_noise(std)} to their average" if std else "adds no noise"
    return (
        f"{terms.name(master)} adds up the messages of {workers:,} workers of its group and {noise}.",
        "It sends the group's model to these workers, and to nobody else.",
    )


def _of_coin(terms: DeploymentTerms, device: int) -> tuple[str, ...]:
    """Sentences on the draw by which ``device`` takes part in a round, and who sees it; () if all do."""
    plan, parent = terms.plan, terms.parent(device)
    if (count := terms.drawn_below(parent)) is not None:
        name, others = terms.name(parent), len(terms.children(parent))
        draws = f"{name} draws {count:,} of the {others:,} below it and adds up their messages alone"
        rely = "the figures towards others rely on that draw, and on its secrecy"
        return (f"It answers in every round; {draws}. It is told to nobody whom: {rely}.",)
    if not terms.devices_draw:
        return ()
    coin = f"takes part in a round with probability {number(plan.participants.rate)}, by a coin of its own"
    from_noise = "others may tell from the noise how many took part, and so whether all or none did"
    noisy, masked, name = _adds_noise_below(terms, parent), terms.is_masked(parent), terms.name(parent)
    if masked and noisy:
        seen = f"masks hide which it was, but {from_noise}"
    elif masked:
        seen = f"masks hide which it was: {name} gets the sum alone, which is 0 where nobody took part"
    elif noisy:
        seen = f"{name} sees which it was, and {from_noise}"
    else:
        seen = f"only {name} sees which it was"
    return (f"It {coin}; otherwise it does the same work and sends zeros, and {seen}.",)


def _is_draw_unseen(terms: DeploymentTerms, parent: int) -> bool:
    """Whether only ``parent``, an aggregator of devices, learns which of them take part.

    With masks not even it does: ``False``. Nor where one of the devices adds noise: the variance of that
    noise over the coordinates of their sum, which everybody gets in the end, tells how many were drawn. There
    `account` amplifies nothing.
    """
    return not (terms.is_masked(parent) or _adds_noise_below(terms, parent))


def _adds_noise_below(terms: DeploymentTerms, parent: int) -> bool:
    """Whether a device below ``parent`` adds noise."""
    return bool(terms.noisy()[list(terms.children(parent))].any())


def _of_draws_below(terms: DeploymentTerms, node: int) -> tuple[str, ...]:
    """Sentences on whether aggregator ``node`` sees which devices take part, and must keep that secret."""
    is_above_devices = min(terms.children(node)) < terms.device_count
    if (count := terms.drawn_below(node)) is not None:
        draws = f"It draws {count:,} of them for each round, which are the only ones that it adds up"
        return (f"{draws}. It must keep that secret: the figures towards others rely on it.",)
    if not (terms.devices_draw and is_above_devices) or terms.is_masked(node):
        return ()
    if _is_draw_unseen(terms, node):
        secret = "must keep that secret: the figures towards others rely on it"
        return (f"It sees which of them take part in a round, and {secret}.",)
    return ("It sees which of them take part in a round.",)


def _encoded(grid: IntegerGrid, share: float, std: float) -> str:
    """How a message is rounded and noised, where ``share`` of it counts in the average.

    ``std``: of its noise, as declared; 0 for none.
    """
    noise = f"adds {_noise(std * grid.unit * grid.inflation)}" if std else "adds no noise"
    return f"rounds it to multiples of {number(1 / (grid.scale * share))}, {noise}"


def _of_parent(terms: DeploymentTerms, party: int) -> tuple[str, ...]:
    """A sentence on who gets the messages of ``party``, and whether singly or summed."""
    parent = terms.parent(party)
    children, fewest = len(terms.children(parent)), terms.fewest(parent)
    among = "all" if fewest == children else f"at least {fewest:,} of the {children:,}"
    if not terms.is_masked(parent):
        return (f"It sends to {terms.name(parent)}, which sees each message.",)
    siding = f"where at most {terms.colluders(parent):,} of them side with it"
    return (f"It sends to {terms.name(parent)}, which learns only the sum of {among} below it, {siding}.",)


def _of_aggregator(terms: DeploymentTerms, node: int) -> tuple[str, ...]:
    """Sentences on what aggregator number ``node`` of a tree does, sees and adds."""
    tier, index = terms.place(node)
    grid, name = terms.grid(_FIRST), terms.name(node)
    weight = float(grid.weights[tier][index])
    std = float(terms.plan.releases.steps[0].node_std[tier][index]) * grid.unit * grid.inflation
    children = len(terms.children(node))
    receives = "learns the sum of" if terms.is_masked(node) else "adds up"
    noise = f"adds {_noise(std)} to their average" if std else "adds no noise"
    drawn = terms.drawn_below(node)
    whose = f"{children:,}" if drawn is None else f"{drawn:,} of the {children:,}"
    said = [f"{name} {receives} the messages of {whose} below it and {noise}."]
    if terms.may_lose_children(node):
        fewest = f", with at least {terms.fewest(node):,} of them" if terms.is_masked(node) else ""
        said.append(f"It goes on without devices that do not answer{fewest}.")
    said += _of_draws_below(terms, node)
    if node == terms.cloud:
        return tuple(said)
    average = f"Its average counts in the global one with weight {number(weight)}."
    return (*said, average, *_of_parent(terms, node))


def _noise(std: float) -> str:
    """Noise of standard deviation ``std``, in the unit of a message, in words; rounded down."""
    return f"discrete Gaussian noise of σ = {lower_bound(std)}"
