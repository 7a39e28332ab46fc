"""Findings on the units that ε is about: δ beside their number, and batches that hold all of them."""

from __future__ import annotations

from sfumato.data.dataset_sizes import dataset_facts, known_examples
from sfumato.errors import SfumatoError
from sfumato.rounding import number
from sfumato.schedule.base import Plan


def warn_of_large_delta(delta: float, count: int, what: str) -> str | None:
    """A warning about a δ of at least one over the number of units; ``None`` otherwise.

    A mechanism that draws one of the n units and publishes all of it says nothing about the others: the
    probability that a unit is published is 1/n, so it is (0, 1/n)-differentially private.

    Args:
        delta: of all guarantees.
        count: n, how many units there are.
        what: what the units are, in words.
    """
    if delta < 1 / count:
        return None
    return (
        f"δ = {number(delta)} is at least 1/n for n = {count:,} {what}: a mechanism that publishes all "
        f"the data of one of them, drawn at random, would meet it; take a δ well below {number(1 / count)}"
    )


def protected_units(plan: Plan) -> tuple[int, str]:
    """How many units ε is about, and what they are in words: devices, records or persons.

    The number is what δ is compared with. Where both devices and records are protected, records, of which
    there are more. Where the sizes of the data are not known, devices: a δ that is too large for so many is
    too large for more records too.
    """
    devices, unit = plan.parties.device_count, plan.spec.privacy.unit
    if unit != "device":
        try:
            known = dataset_facts(plan.spec.data, devices).counted_in_persons
        except SfumatoError:  # neither tabulated nor on this machine
            return devices, "devices"
        return max(known.train_examples, 1), "persons" if unit == "person" else "records"
    return devices, "devices"


def warn_of_whole_batches(plan: Plan) -> str | None:
    """A warning about Poisson batches that hold every record or person of a device; or ``None``.

    Records are drawn with probability min(1, batch size / number of records); at 1 nothing is hidden by the
    draw, and the noise for the same ε is largest.
    """
    training, privacy = plan.spec.training, plan.spec.privacy
    if training.batches != "poisson" or training.batch_size == "all" or privacy.unit == "device":
        return None
    try:
        sizes = known_examples(plan.spec, plan.devices_per_place)
    except SfumatoError:  # neither tabulated nor on this machine
        return None
    if sizes is None or not (whole := int((sizes <= training.batch_size).sum())):
        return None
    what = "persons" if privacy.unit == "person" else "records"
    fewest = int(sizes.min())
    share = f"take a small share of the fewest, {fewest:,}"
    apart = f"leave devices of so few {what} out, or put them together with others"
    return (
        f"{whole:,} of {len(sizes):,} devices {'has' if whole == 1 else 'have'} no more {what} than "
        f"training.batch_size, {training.batch_size:,}: each of them is in every local step, so drawing "
        f"hides nothing and the noise for the same ε is far larger; {share if fewest > 1 else apart}"
    )
