"""What the accounts of a point say: ε towards the observers that it watches, and the claims of its paper."""

from __future__ import annotations

import math

from sfumato.errors import RunError
from sfumato.privacy.claim import Claim
from sfumato.report.results.network import towards_in_words
from sfumato.run_folder.reader import PRIVACY_FILE, read_json
from sfumato.studies.measures.base import Measurement, Measurements, PointFolder
from sfumato.sweeps.point_result import result_of


def epsilon_towards(folder: PointFolder, observer: str) -> Measurements:
    """The ε of the worst unit towards a kind of observer, from the account; [] without such an observer.

    Args:
        folder: of the point.
        observer: the kind, by its name in the account, such as ``cloud``.

    Raises:
        RunError: the folder has no accounts any more.
    """
    result = result_of(folder.path)
    if result is None:
        raise RunError(f"{folder.path}: has no accounts any more; run the study again")
    found = result["epsilon"].get(observer)
    return [] if found is None else [Measurement(float(found))]


def claimed_epsilon(folder: PointFolder, which: str) -> Measurements:
    """The largest ε that the paper claims, among some claims; [] if there are none, or one is NaN.

    ``which``: ``TEXT@OBSERVER``: claims towards this observer, or towards any of this kind, whose source
    contains the text.
    """
    return _largest([claim.claimed_epsilon for claim in _claims(folder, which)])


def epsilon_of_claim(folder: PointFolder, which: str) -> Measurements:
    """The largest rigorous ε for the pairs of some claims; [] if there are none, or one is NaN.

    ``which``: as of `claimed_epsilon`.
    """
    return _largest([claim.rigorous_epsilon for claim in _claims(folder, which)])


def claim_and_rigorous(folder: PointFolder, which: str) -> Measurements:
    """What the paper claims towards an observer, and the rigorous ε towards it and others, by series.

    ``which``: ``TEXT@OBSERVER,OBSERVER``: the first observer is the one of the claim, in series ``claimed``;
    each is one of `epsilon_of_claim`, in series such as ``rigorous, towards the cloud``.
    """
    source, _, listed = which.partition("@")
    observers = listed.split(",")
    found = [Measurement(one.value, "claimed") for one in claimed_epsilon(folder, f"{source}@{observers[0]}")]
    for observer in observers:
        series = f"rigorous, {towards_in_words(observer)}"
        found += [Measurement(one.value, series) for one in epsilon_of_claim(folder, f"{source}@{observer}")]
    return found


def _claims(folder: PointFolder, which: str) -> list[Claim]:
    """The claims in a folder that ``which``, ``TEXT@OBSERVER``, selects.

    ``TEXT`` is part of a claim's source, ``OBSERVER`` the whole name of its observer.
    """
    source, _, observer = which.partition("@")
    claims = map(Claim.from_dict, read_json(folder.path / PRIVACY_FILE).get("claims", ()))
    return [
        claim
        for claim in claims
        if source in claim.source and observer in (claim.observer, claim.observer.partition(":")[0])
    ]


def _largest(found: list[float]) -> Measurements:
    """One measurement of the largest number of ``found``; none if that is empty or has a NaN."""
    return [Measurement(max(found))] if found and not any(map(math.isnan, found)) else []
