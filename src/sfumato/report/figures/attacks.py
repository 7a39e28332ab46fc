"""The section about attacks: guaranteed ε, empirical lower bounds, ROC curves, reconstructed images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sfumato.privacy.losses.gaussian import allowed_tpr
from sfumato.report import formatting as text
from sfumato.report.figures.audits import audit_figure
from sfumato.report.figures.curves import LEGEND, MARGIN
from sfumato.report.figures.figure import NEUTRAL, NO_GUARANTEE, Figure, colour, faded, log_ticks, tick_label
from sfumato.report.figures.images import image_element
from sfumato.report.page.html import PlacedFigures, bullet_list
from sfumato.report.results.attack_findings import (
    ObserverFindings,
    Reconstructions,
    guaranteed_epsilon,
    verdict,
)
from sfumato.run_folder.reader import RunFolder, as_epsilon

_MOST_PICTURES = 8
_NO_LIMIT = 0.99
_LEVELS = {
    "record": ("Membership of examples", "is this example in the device's data?"),
    "device": ("Membership of devices", "did this device take part with its data?"),
    "label": ("Labels held", "does the device hold this label?"),
}
_COLUMNS = {"originals": "original", "reconstructions": "reconstruction", "guesses": "class mean"}
_SCORES = {"ssim": "SSIM", "psnr": "PSNR", "mse": "MSE", "lpips": "LPIPS"}


def attacks_part(run: RunFolder, observers: Sequence[ObserverFindings], figures: PlacedFigures) -> str:
    """HTML of one run: a verdict, and audits drawn; of attacks a table, and what each observer has found."""
    notes = list(dict.fromkeys(note for one in observers for note in one.notes))
    drawn = audit_figure(observers, text.at_delta(run.privacy))
    parts = [f'<p class="lead">{text.escape(verdict(observers))}</p>', figures.place(drawn) if drawn else ""]
    if attackers := [one for one in observers if one.curves or one.reconstructions is not None]:
        parts += [_overview(run, attackers), *(_observer(run, one, figures) for one in attackers)]
    return "".join([*parts, bullet_list(notes) if notes else ""])


def _overview(run: RunFolder, observers: Sequence[ObserverFindings]) -> str:
    rows = []
    for one in observers:
        lower = max((as_epsilon(finding["lower"]) for finding in one.audits), default=math.nan)
        rows.append(
            (
                one.title,
                text.epsilon(guaranteed_epsilon(run, one)),
                text.lower_epsilon(lower),
                *(_best(one, level) for level in _LEVELS),
                _mean_ssim(one.reconstructions),
            )
        )
    titles = [
        "observer",
        "guaranteed ε",
        "empirical ε (lower bound)",
        "examples found",
        "devices found",
        "labels found",
        "SSIM",
    ]
    kept = [number for number in range(len(titles)) if number < 2 or {row[number] for row in rows} != {"–"}]
    shown = [[row[number] for number in kept] for row in rows]
    levels = text.join_names([titles[number].removesuffix(" found") for number in kept if 3 <= number <= 5])
    said = [
        f"The accountant's ε{text.at_delta(run.privacy)}",
        "the lower bound of an audit" if 2 in kept else "",
        f"true-positive rate of the best attack on {levels} at 1 % false positives" if levels else "",
        "mean SSIM of images" if 6 in kept else "",
        "–: not measured" if any("–" in row for row in shown) else "",
    ]
    return text.table(
        [titles[number] for number in kept],
        shown,
        caption="; ".join(filter(None, said)),
        numeric=tuple(range(1, len(kept))),
    )


def _best(one: ObserverFindings, level: str) -> str:
    rows = [row for row in one.curves if row["level"] == level]
    return text.percent(max((row["tpr_at"]["0.01"]["value"] for row in rows), default=math.nan))


def _mean_ssim(pictures: Reconstructions | None) -> str:
    scores = [] if pictures is None else [image["scores"].get("ssim") for image in pictures.images]
    known = [float(score) for score in scores if score is not None]
    return text.number(sum(known) / len(known)) if known else "–"


def _observer(run: RunFolder, one: ObserverFindings, figures: PlacedFigures) -> str:
    drawn = [
        figures.place(_curve_figure(level, rows))
        for level in _LEVELS
        if (rows := [row for row in one.curves if row["level"] == level])
    ]
    parts = [f"<h3>As {text.escape(one.title)}</h3>", bullet_list(_said(run, one))]
    if drawn:
        parts.append(f'<div class="panels">{"".join(drawn)}</div>')
    if one.reconstructions is not None:
        parts.append(_gallery(one.reconstructions))
    return f'<div class="observer">{"".join(parts)}</div>'


def _said(run: RunFolder, one: ObserverFindings) -> list[str]:
    """Sentences about the guarantee, the audits, and attacks above the guarantee."""
    epsilon = guaranteed_epsilon(run, one)
    said = []
    if math.isinf(epsilon):
        said.append("There is no guarantee towards this observer (ε = ∞).")
    elif not math.isnan(epsilon):
        said.append(f"Guarantee: no device's ε exceeds {text.epsilon(epsilon)}{text.at_delta(run.privacy)}.")
    for finding in one.audits:
        verdict = "the guarantee holds" if finding["holds"] else "THE GUARANTEE IS REFUTED"
        said.append(
            f"Audit of {finding['unit']}: the empirical ε is at least "
            f"{text.lower_epsilon(as_epsilon(finding['lower']))}, the guaranteed ε is "
            f"{text.epsilon(as_epsilon(finding['upper']))}{text.at_delta(run.privacy)}; {verdict}."
        )
    above = [row for row in one.curves if row["exceeds_bound"]]
    if above:
        names = [f"{row['attack']} ({row['level']})" for row in above]
        said.append(f"ABOVE THE GUARANTEE: {text.join_names(names)}.")
    return said


def _curve_figure(level: str, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """ROC curves on logarithmic axes, with the region that (ε, δ) forbids."""
    name, question = _LEVELS[level]
    members, others, bound = rows[0]["members"], rows[0]["others"], rows[0]["bound"]
    epsilon = as_epsilon(bound["epsilon"])
    floor = 10.0 ** math.floor(math.log10(min(0.5 / others, 0.5 / members)))
    grid = np.geomspace(floor, 1, 121)
    is_bounded = level != "label" and math.isfinite(epsilon)
    data = _forbidden(grid, epsilon, float(bound["delta"]), floor) if is_bounded else []
    best = max(rows, key=lambda row: (row["tpr_at"]["0.01"]["value"], row["auc"]["value"]))
    data += _band(best, colour(rows.index(best)), floor)
    data += [_line(row, colour(number), floor) for number, row in enumerate(rows)]
    data.append(
        _trace("guessing", grid, grid, {"color": NEUTRAL, "dash": "dot", "width": 1.5}, "linear", False)
    )
    if is_bounded:
        words = _about_the_limit(epsilon, float(bound["delta"]), str(bound["neighbours"]), floor)
    elif math.isinf(epsilon):
        words = ". There is no guarantee, so every curve is possible"
    else:
        words = ". ε does not bound this curve, because common labels can be guessed without the run"
    return Figure(
        title=f"{name}: {question}",
        caption=(
            f"{text.whole(members)} members, {text.whole(others)} non-members. Both axes are logarithmic; a "
            f"rate of zero is drawn at the left edge. Band: 95 % interval of “{best['attack']}”{words}."
        ),
        description=f"{name}. "
        + " ".join(
            f"{row['attack']}: {text.percent(row['tpr_at']['0.01']['value'])} true positives at 1 % false "
            f"ones, area {row['auc']['value']:.3f}."
            for row in rows
        ),
        data=data,
        layout={
            "height": 400,
            "margin": MARGIN,
            "legend": LEGEND | {"traceorder": "normal"},
            "showlegend": True,
            "hovermode": "closest",
            "xaxis": _axis("false-positive rate", floor),
            "yaxis": _axis("true-positive rate", floor),
        },
        table=_numbers(rows),
        kind=f"roc-{level}",
    )


def _about_the_limit(epsilon: float, delta: float, neighbours: str, floor: float) -> str:
    """What the red line is, and whether any curve could cross it."""
    which = f"ε = {text.epsilon(epsilon)} (δ = {text.number(delta)}, relation {neighbours})"
    if neighbours == "replace":
        which += ", as these attacks tell a member from another in its place"
    if float(allowed_tpr(np.array([floor]), epsilon=epsilon, delta=delta)[0]) > _NO_LIMIT:
        return f". The limit set by {which}, is at 100 % everywhere: no attack drawn here can refute it"
    return f". Shaded: the region that {which}, excludes; with few trials a curve may enter it by chance"


def _axis(title: str, floor: float) -> dict[str, Any]:
    ticks = log_ticks(floor, 1.0)
    return {
        "title": {"text": title},
        "type": "log",
        "range": [math.log10(floor), 0.05],
        "tickvals": ticks,
        "ticktext": [tick_label(100 * tick) + " %" for tick in ticks],
    }


def _trace(
    name: str, x: Any, y: Any, line: Mapping[str, Any], shape: str, hover: bool, **more: Any
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": text.label(name),
        "x": [float(value) for value in x],
        "y": [float(value) for value in y],
        "line": {**line, "shape": shape},
        **({"hovertemplate": "%{y:.3g} at %{x:.3g}"} if hover else {"hoverinfo": "skip"}),
        **more,
    }


def _forbidden(grid: Any, epsilon: float, delta: float, floor: float) -> list[dict[str, Any]]:
    limit = np.maximum(allowed_tpr(grid, epsilon=epsilon, delta=delta), floor)
    above = np.full_like(grid, 2.0)
    edge = {"color": NO_GUARANTEE, "width": 1.5}
    return [
        _trace("", grid, limit, {"width": 0}, "linear", False, showlegend=False),
        _trace(
            "", grid, above, {"width": 0}, "linear", False,
            showlegend=False, fill="tonexty", fillcolor=faded(NO_GUARANTEE, 0.1),
        ),
        _trace("limit set by ε", grid, limit, edge, "linear", False),
    ]  # fmt: skip


def _steps(row: Mapping[str, Any], column: str, floor: float) -> tuple[Any, Any]:
    """A curve as steps from the left edge to the right edge; zero is drawn at the edge."""
    x = np.append(np.maximum(row["curve"]["fpr"], floor), 1.0)
    y = np.maximum(row["curve"][column], floor)
    return x, np.append(y, y[-1])


def _line(row: Mapping[str, Any], hue: str, floor: float) -> dict[str, Any]:
    x, y = _steps(row, "tpr", floor)
    return _trace(row["attack"], x, y, {"color": hue, "width": 2}, "hv", True)


def _band(row: Mapping[str, Any], hue: str, floor: float) -> list[dict[str, Any]]:
    x, low = _steps(row, "tpr_low", floor)
    _, high = _steps(row, "tpr_high", floor)
    fill = {"fill": "tonexty", "fillcolor": faded(hue, 0.15)}
    return [
        _trace("", x, low, {"width": 0}, "hv", False, showlegend=False),
        _trace("", x, high, {"width": 0}, "hv", False, showlegend=False, **fill),
    ]


def _numbers(rows: Sequence[Mapping[str, Any]]) -> str:
    return text.table(
        ["attack", "TPR at FPR 0.1 %", "TPR at FPR 1 %", "AUC"],
        [(row["attack"], *(_interval(e) for e in (*row["tpr_at"].values(), row["auc"]))) for row in rows],
        caption="With 95 % intervals",
        numeric=(1, 2, 3),
    )


def _interval(estimate: Mapping[str, float]) -> str:
    return f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def _gallery(pictures: Reconstructions) -> str:
    """Originals and reconstructions side by side, with scores."""
    cards = []
    for number, image in enumerate(pictures.images[:_MOST_PICTURES]):
        target = str(image["target"])
        views = "".join(
            f"<div>{image_element(array[number], f'{_COLUMNS[name]}, {target}')}"
            f"<small>{text.escape(_COLUMNS[name])}</small></div>"
            for name, array in pictures.arrays.items()
        )
        words = " · ".join(filter(None, [target, str(image["attack"]), _scores(image["scores"])]))
        cards.append(f'<li><div class="views">{views}</div><p>{text.escape(words)}</p></li>')
    left = len(pictures.images) - len(cards)
    more = f"<p>{text.whole(left)} more are in the run folder.</p>" if left > 0 else ""
    return f'<h4>Reconstructions</h4><ul class="gallery">{"".join(cards)}</ul>{more}'


def _scores(scores: Mapping[str, Any]) -> str:
    known = [
        (label, as_epsilon(scores[key])) for key, label in _SCORES.items() if scores.get(key) is not None
    ]
    return ", ".join(f"{label} {'∞' if math.isinf(value) else text.number(value)}" for label, value in known)
