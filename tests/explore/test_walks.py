"""Walks through the page in Chromium: what a person does, and what the page says then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from explore_specs import TREE

import sfumato as sf
from sfumato.report import formatting as text
from sfumato.user_text import parse_yaml

pytestmark = pytest.mark.needs("chromium", "explore", "playwright")
PATIENCE_MS = 60_000


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    return expect(locator)


def cells(page: Any) -> set[str]:
    """The figures in the cells of the heatmap."""
    return set(page.locator("#heatmap .heatmap-label").all_text_contents()) - {""}


def said_by_account(*overrides: str) -> set[str]:
    """The largest ε of every cell that `account` makes of the spec."""
    rows = sf.account(sf.load_spec(TREE, overrides)).to_dict()["guarantees"]
    return {text.epsilon(float(row["epsilon"])) for row in rows}


def click_party(page: Any, number: str) -> None:
    """Click an aggregator in the drawing, by the number inside of its mark."""
    mark = page.locator("#network .scatterlayer text").filter(has_text=re.compile(f"^{number}$")).first
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def told_to_screen_readers(page: Any) -> None:
    """What changes, what the heatmap shows, and what every field is called."""
    live = page.locator("[aria-live=polite], [role=alert]")
    assert live.count() >= 5
    described = page.locator("#heatmap-frame").get_attribute("aria-label")
    assert "4 devices under edge 0 towards cloud: epsilon" in described
    names = page.locator("input:visible").evaluate_all(
        "all => all.filter(e => !e.closest_hint('[aria-hidden]')).map(e => (e.labels || []).length)"
    )
    assert len(names) > 10
    assert min(names) == 1
    hidden = page.locator("[aria-hidden=true] input").evaluate_all("all => all.map(e => e.tabIndex)")
    assert set(hidden) == {-1}


def test_a_click_on_an_edge_trusts_it_and_the_heatmap_follows(page):
    assert cells(page) == said_by_account()
    assert page.get_by_label("edge 0", exact=True).is_checked()
    click_party(page, "0")
    expect(page.get_by_label("edge 0", exact=True)).not_to_be_checked()
    expect(page.locator("#numbers")).to_contain_text("12 devices under edges 0–2")
    assert cells(page) == said_by_account("trust.trusted_edges=[]") != said_by_account()
    click_party(page, "1")
    expect(page.get_by_label("edge 1", exact=True)).to_be_checked()
    expect(page.locator("#network-caption")).to_contain_text("1 of 3 edges")
    expect(page.locator("#numbers")).to_contain_text("4 devices under edge 1: edge trusted")
    assert cells(page) == said_by_account("trust.trusted_edges=[1]")


def test_by_keyboard_alone_and_with_a_screen_reader(page):
    told_to_screen_readers(page)
    box = page.get_by_label("edge 2", exact=True)
    for _ in range(20):
        page.keyboard.press("Tab")
        if box.evaluate("element => element === document.activeElement"):
            break
    expect(box).to_be_focused()
    page.keyboard.press("Space")
    expect(page.locator("#network-caption")).to_contain_text("2 of 3 edges")
    number = page.get_by_label("ε target towards the cloud")
    for _ in range(20):
        if number.evaluate("element => element === document.activeElement"):
            break
        page.keyboard.press("Shift+Tab")  # noise comes before the network
    expect(number).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    expect(page.locator("#summary")).to_contain_text("cloud2public")
    wanted = said_by_account("trust.trusted_edges=[0, 2]", "privacy.noise.epsilon=2")
    for figure in wanted:  # the heatmap is drawn after the summary is written
        exactly = re.compile(f"^{re.escape(figure)}$")
        expect(page.locator("#heatmap .heatmap-label").filter(has_text=exactly).first).to_be_attached()
    assert cells(page) == wanted
    for _ in range(60):
        if page.get_by_role("button", name="Undo all changes").evaluate("e => e === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#summary")).to_contain_text("cloud8public")
    expect(box).not_to_be_checked()


def test_a_coalition_by_clicks_and_by_name(page):
    alone = sf.account(sf.load_spec(TREE), unit="device:5", observer="cloud").guarantees[0]
    unit = page.get_by_label("Protected unit")
    unit.fill("device:5")
    unit.press("Enter")
    answer = page.locator("#coalition-said")
    expect(answer).to_contain_text(f"device:5 towards cloud: ε = {text.epsilon(alone.epsilon)}.")
    page.get_by_label("adds a party to the coalition").check()
    click_party(page, "1")
    expect(page.get_by_label("Observers, joined by commas")).to_have_value("cloud,edge:1")
    both = sf.account(sf.load_spec(TREE), unit="device:5", observer="cloud,edge:1").guarantees[0]
    expect(answer).to_contain_text(f"cloud and edge:1: ε = {text.epsilon(both.epsilon)}.")
    observers = page.get_by_label("Observers, joined by commas")
    observers.fill("cloud,device:5")
    observers.press("Enter")
    expect(answer).to_contain_text("it knows its own data")


def test_a_wrong_number_is_said_and_the_figures_stay(page):
    before = cells(page)
    page.get_by_label("rounds", exact=True).fill("0")
    problem = page.get_by_role("alert").first
    expect(problem).to_contain_text("Rounds: got 0; must be a whole number")
    expect(page.locator("#shown")).to_have_class("old")
    assert cells(page) == before
    page.get_by_label("rounds", exact=True).fill("6")
    expect(page.locator("#command")).to_contain_text("training.rounds=6")
    expect(problem).to_be_hidden()
    assert cells(page) == said_by_account("training.rounds=6")


def test_two_settings_side_by_side(page):
    page.get_by_role("button", name="Keep this setting").click()
    expect(page.get_by_role("heading", name="The kept setting")).to_be_visible()
    noise = page.get_by_label("ε target towards the cloud")
    noise.fill("4")
    differences = page.locator("#differences")
    expect(differences).to_contain_text("The largest ε towards cloud falls from 8 to 4.")
    assert cells(page) == said_by_account("privacy.noise.epsilon=4")
    kept = set(page.locator("#kept-heatmap .heatmap-label").all_text_contents()) - {""}
    assert kept == said_by_account()
    page.set_viewport_size({"width": 420, "height": 900})  # lists stand for both heatmaps
    expect(page.locator("#kept-heatmap")).to_be_hidden()
    expect(page.locator("#kept-lists details").first).to_be_visible()
    assert set(page.locator("#kept-lists dd").all_text_contents()) >= {"8"}
    assert "8" not in set(page.locator("#heatmap-lists dd").all_text_contents())
    page.set_viewport_size({"width": 1200, "height": 900})
    page.get_by_role("button", name="Return to the kept setting").click()
    expect(noise).to_have_value("8")
    expect(differences).to_contain_text("The settings are the same.")
    page.get_by_role("button", name="Forget the kept setting").click()
    expect(page.get_by_role("heading", name="The kept setting")).to_be_hidden()


def test_the_spec_is_downloaded_with_its_changes(page):
    page.get_by_label("cloud", exact=True).check()
    expect(page.locator("#command")).to_contain_text("cloud")
    with page.expect_download() as found:
        page.get_by_role("button", name="Download the spec").click()
    assert found.value.suggested_filename == "small.yaml"
    spec = sf.load_spec(parse_yaml(Path(found.value.path()).read_text("utf-8"), "small.yaml"))
    assert spec == sf.load_spec(TREE, ["trust={cloud: true, trusted_edges: [0]}"])


@pytest.mark.needs("plan")
def test_a_plan_becomes_the_setting(page):
    page.get_by_label("Targets of ε for a plan").fill("cloud=3")
    page.get_by_role("button", name="Plan the noise").click()
    expect(page.locator("#summary")).to_contain_text("cloud3public")
    expect(page.get_by_label("ε target towards the cloud")).to_be_hidden()


def test_a_run_is_started_followed_and_reported(page):
    expect(page.locator("#estimate")).to_contain_text("there is no estimate")
    page.get_by_role("button", name="Run this setting").click()
    said = page.locator("#job-said")
    expect(said).to_contain_text("The run in runs/small is")
    expect(said).to_contain_text("is finished. 3 of 3 rounds are written.")
    page.locator("#accuracy-curve .js-line").first.wait_for()
    run = sf.load_run("runs/small")
    described = page.locator("#accuracy-curve-frame").get_attribute("aria-label")
    assert f"{text.percent(run.metrics['accuracy'].iloc[-1])} at round 3" in described
    expect(page.locator("#estimate")).to_contain_text("Measured: ")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="The report of the run").click()
    opened.value.locator(".plot svg").first.wait_for()
    assert opened.value.evaluate("window.origin") == "null"  # it cannot ask this server for anything


def is_gone(button):
    from playwright.sync_api import TimeoutError

    try:
        button.wait_for(state="hidden", timeout=20_000)
    except TimeoutError:
        return button.is_hidden()
    return True


def test_a_long_run_is_drawn_while_it_runs_and_stopped(page):
    rounds = page.get_by_label("rounds", exact=True)
    rounds.fill("20000")
    expect(page.locator("#command")).to_contain_text("20000")
    page.get_by_role("button", name="Run this setting").click()
    said = page.locator("#job-said")
    expect(said).to_contain_text(re.compile(r"is running\. .* of 20.000 rounds are written"))
    page.locator("#accuracy-curve .js-line").first.wait_for()
    expect(page.get_by_role("button", name="Run a pilot")).to_be_disabled()
    stop = page.get_by_role("button", name="Stop the run")
    for _ in range(3):  # a click may be lost on a busy machine; a person clicks again
        stop.click()
        if is_gone(stop):
            break
    expect(said).to_contain_text("The run was stopped; continue it with: sfumato run runs/small/spec.yaml")
    expect(page.get_by_role("button", name="Run a pilot")).to_be_enabled()


def test_in_light_and_dark_and_on_a_phone(page):
    for scheme, colour in (("dark", "rgb(230, 232, 235)"), ("light", "rgb(29, 33, 38)")):
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("#heatmap .xtick text").first).to_have_css("fill", colour)
        expect(page.locator("body")).to_have_css("color", colour)
    page.set_viewport_size({"width": 420, "height": 800})
    expect(page.get_by_role("button", name="Run this setting")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 420
