"""What accuracy guessing would have: by the labels of the test set, or by the number of classes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sfumato.data.builtin_datasets import BUILT_IN
from sfumato.data.synthetic import CLASSES

CHANCE_FACTOR = 1.2
"""At 1.2 times the accuracy of guessing, a test set of some hundred examples shows no difference."""


def classes_of(source: str) -> int | None:
    """Number of classes of the data set ``source`` if it is built in or synthetic; ``None`` for others."""
    if source == "synthetic":
        return CLASSES
    return BUILT_IN[source].facts.classes if source in BUILT_IN else None


def share_of_most_frequent(test_labels: Mapping[str, int]) -> float:
    """The accuracy, 0 to 1, of always predicting the most frequent label.

    ``test_labels``: number of test examples of each label, one or more in all.
    """
    return max(test_labels.values()) / sum(test_labels.values())


def share_of_guessing(source: str, test_labels: Mapping[str, int] | None) -> float:
    """The accuracy of guessing, 0 to 1; NaN where neither labels nor classes are known.

    Args:
        source: ``data.source`` of the spec.
        test_labels: number of test examples of each label: the most frequent one is guessed; ``None`` where
            they are not known: a class is guessed at random.
    """
    if test_labels is not None:
        return share_of_most_frequent(test_labels)
    classes = classes_of(source)
    return math.nan if classes is None else 1 / classes


def guessing_in_words(source: str, test_labels: Mapping[str, int] | None) -> str:
    """A clause that says what accuracy guessing gives; "" where neither labels nor classes are known.

    ``source`` and ``test_labels``: as of `share_of_guessing`.
    """
    share = share_of_guessing(source, test_labels)
    if math.isnan(share):
        return ""
    what = "guessing" if test_labels is None else "guessing the most frequent class"
    return f"{what} would give {100 * share:.1f} %"


def warn_of_one_label_accuracy(accuracy: float, test_labels: Mapping[str, int]) -> str | None:
    """A warning about an accuracy that is at most that of the most frequent label; ``None`` otherwise.

    A model that predicts one label for everything has the accuracy of that label, which is never higher.

    Args:
        accuracy: on the test set, 0 to 1; NaN where it was not measured.
        test_labels: number of test examples of each label, one or more in all.
    """
    total, share = sum(test_labels.values()), share_of_most_frequent(test_labels)
    if math.isnan(accuracy) or round(accuracy * total, 6) > round(share * total, 6):
        return None
    said = [label for label, count in test_labels.items() if count and math.isclose(accuracy * total, count)]
    one = f", and just that of a model that always says {said[0]}" if len(said) == 1 else ""
    return (
        f"the accuracy, {100 * accuracy:.1f} %, is not above that of guessing the most frequent class, "
        f"{100 * share:.1f} %{one}: by this measure nothing was learned"
    )


def warn_of_chance_accuracy(accuracy: float, classes: int | None) -> str | None:
    """A warning about an accuracy that is at most 1.2 times that of guessing; ``None`` otherwise.

    ``classes``: number of labels; ``None`` where it is not known, and no warning is given.
    """
    if classes is None or math.isnan(accuracy) or accuracy > CHANCE_FACTOR / classes:
        return None
    above = "hardly" if round(1000 * accuracy) > round(1000 / classes) else "not"
    return (
        f"the accuracy, {100 * accuracy:.1f} %, is {above} above that of guessing among {classes} classes "
        f"({100 / classes:.1f} %): by this measure nothing was learned"
    )
