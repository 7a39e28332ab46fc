"""The table of pairs whose ε after the run differs from the guarantee, which is made before it."""

from __future__ import annotations

from sfumato.report import formatting as text
from sfumato.report.results.observer_labels import ObserverLabels
from sfumato.run_folder.recorded_privacy import RecordedPrivacy


def after_run_table(
    privacy: RecordedPrivacy, labels: ObserverLabels, *, elected: bool = False, over_air: bool = False
) -> str:
    """HTML of a folded table of the pairs whose ε after the run differs from the guarantee; "" if none does.

    Figures are compared as they are printed.

    Args:
        privacy: of the run.
        labels: of its network, for the classes of units.
        elected: whether devices are elected supernode.
        over_air: whether messages are added up over the air.
    """
    rows = []
    for place, after in privacy.after_run.items():
        row = privacy.guarantees[place]
        before, since = text.epsilon(row.epsilon), text.epsilon(after.epsilon)
        if before != since:
            whose = labels.row(row.unit, row.sites).title
            rows.append((whose, row.observer, before, since, after.participations))
    if not rows:
        return ""
    table = text.html_table(
        ["class", "observer", "guaranteed ε", "ε after the run, of its worst device", "its rounds"],
        rows,
        caption=f"Pairs whose ε after the run differs from the guarantee{text.at_delta(privacy.delta)}",
        numeric=(2, 3, 4),
    )
    signals = (
        ", or how strong a signal over the air will be: it is charged for the strongest that may be"
        if over_air
        else ""
    )
    others = ", or more rounds in which other devices are elected supernode," if elected else ""
    words = (
        f"The guarantee is made before the run, when nobody knows who will be drawn{' or elected' * elected}"
        f"{signals}. After the run this is known, and a draw hides nothing any more. More rounds than "
        f"expected{others} make ε larger{'; weaker signals make it smaller' * over_air}. Each row has the "
        "device of the class with the largest ε after the run, and the number of rounds that it took part "
        "in; a device that was never drawn has sent nothing. These figures apply to this "
        f"run only.{_other_observers(privacy)}"
    )
    return (
        "<details><summary>ε after the run, where it differs from the guarantee</summary>"
        f"<p>{text.escape(words)}</p>{table}</details>"
    )


def _other_observers(privacy: RecordedPrivacy) -> str:
    """A sentence, after a space, on observers towards whom ε after the run is not computed; "" if none."""
    every = dict.fromkeys(row.observer for row in privacy.guarantees)
    known = {privacy.guarantees[place].observer for place in privacy.after_run}
    others = ["other devices" if name.startswith("device:") else name for name in every if name not in known]
    others = [text.plotly_label("the public" if name == "public" else name) for name in dict.fromkeys(others)]
    named = text.join_names(others, 4).replace(" and ", " or ")
    return f" They are not computed towards {named}." if others else ""
