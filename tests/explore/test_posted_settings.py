"""Settings that the browser sends and that cannot be used: the page says so, and nothing fails inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from explore_specs import TREE, edited

from sfumato.errors import SpecError
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.edited_spec import EditedSpec

pytestmark = pytest.mark.needs("explore")
TOKEN, BASE = "abc", "http://127.0.0.1:8050"
UPDATE = "/_dash-update-component"
RIGHT = edited(TREE).to_json()
INVALID = [
    "", "{", "[]", "7", '"setting"', "{}", '{"source": "a", "document": {}}',
    '{"source": 1, "document": {}, "changes": {}}',
    '{"source": "", "document": [], "changes": {}}', '{"source": "", "document": {}, "changes": []}',
    '{"source": "", "document": {}, "changes": {}}', "[" * 5000,
    json.dumps(json.loads(RIGHT) | {"changes": {"training.rounds": -1}}),
    json.dumps(json.loads(RIGHT) | {"changes": {"": 1}}),
    json.dumps(json.loads(RIGHT) | {"document": TREE | {"protocol": "none such"}}),
    json.dumps(json.loads(RIGHT) | {"document": TREE | {"topology": {"kind": "tree", "file": "gone.yaml"}}}),
]  # fmt: skip


class Page:
    """What the browser sends for the page, and what the server answers."""

    def __init__(self, client: Any) -> None:
        self.client = client
        callbacks = client.get("/_dash-dependencies", base_url=BASE).get_json()
        self.callbacks = {one["output"]: one for one in callbacks if not one["clientside_function"]}

    def post(self, output: str, cause: str, **values: Any) -> Any:
        """The answer to the callback whose outputs begin so; what is not in ``values`` is empty."""
        name, one = next((n, c) for n, c in self.callbacks.items() if n.strip(".").startswith(output))

        def told(listed: list[dict[str, str]]) -> list[dict[str, Any]]:
            return [
                {**i, "value": values.get(f"{i['id']}_{i['property']}".replace("-", "_"))} for i in listed
            ]

        parts = name.strip(".").split("...")
        outputs = [dict(zip(("id", "property"), p.split("@")[0].rsplit(".", 1), strict=True)) for p in parts]
        body = {
            "output": name,
            "outputs": outputs if name.startswith("..") else outputs[0],
            "inputs": told(one["inputs"]),
            "state": told(one["state"]),
            "changedPropIds": [cause],
        }
        return self.client.post(UPDATE, base_url=BASE, headers={"Origin": BASE}, json=body)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    from sfumato.explore.application import application
    from sfumato.explore.jobs import Jobs

    jobs = Jobs(tmp_path / "runs")
    server = application(edited(TREE), jobs, TOKEN)
    with server.test_client() as client:  # as a browser sees it: what fails inside is status 500
        client.get(f"/?token={TOKEN}", base_url=BASE)
        yield Page(client)
    jobs.close()


def changed(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return answer.get_json()["response"]


@pytest.mark.parametrize("setting", INVALID)
def test_the_page_says_what_is_wrong_with_a_setting(page: Page, setting: str) -> None:
    with pytest.raises(SpecError):
        account_setting(EditedSpec.from_json(setting))
    for values in ({"setting_data": setting}, {"setting_data": RIGHT, "kept_data": setting}):
        if not setting and "kept_data" in values:
            continue  # nothing is kept
        said = changed(page.post("setting.data", "unit.value", first_data=setting, **values))
        assert said["problem"]["hidden"] is False
        assert len(said["problem"]["children"]) > 20
        assert "figures" not in said
        assert "setting" not in said  # the page keeps what it has
    started = changed(page.post("job.data", "start.n_clicks", setting_data=setting, start_n_clicks=1))
    assert started["job-problem"]["hidden"] is False
    assert started["job-problem"]["children"]
    estimated = changed(page.post("estimate.children", "setting.data", setting_data=setting))
    assert len(estimated["estimate"]["children"]["props"]["children"]) > 20
    saved = page.post("download.data", "save.n_clicks", setting_data=setting, save_n_clicks=1)
    if "gone.yaml" in setting:  # the spec itself is right: whether the file is there, a run will see
        assert saved.status_code == 200
    else:
        assert (saved.status_code, saved.mimetype) == (400, "text/plain")


def test_the_page_says_that_a_run_runs_code(page: Page) -> None:
    layout = page.client.get("/_dash-layout", base_url=BASE).get_data(as_text=True)
    assert "calls the code that the spec names (package.module:factory), with your rights" in layout


@pytest.mark.parametrize(
    ("cause", "values", "said"),
    [
        ("rounds-number.value", {"rounds_number_value": "many"}, "the page: numbers.rounds"),
        ("rounds-number.value", {"rounds_number_value": True}, "the page: numbers.rounds"),
        ("rounds-slider.value", {"rounds_slider_value": [1]}, "the page: sliders.rounds"),
        ("rounds-slider.value", {}, "is empty or no number"),
        ("trusted.value", {"trusted_value": "edge:0"}, "the page: trusted"),
        ("trusted.value", {"trusted_value": [0]}, "the page: trusted"),
        ("trusted.value", {"trusted_value": ["edge:77"]}, ""),
        ("network.clickData", {"network_clickData": {"points": []}}, "the page: network"),
        ("network.clickData", {"network_clickData": 3}, "the page: network"),
        ("unit.value", {"unit_value": 3}, "the page: unit"),
        ("participation.value", {"participation_value": "sometimes"}, ""),
        ("plan.n_clicks", {"targets_value": "cloud"}, "OBSERVER=EPSILON"),
        ("undo.n_clicks", {}, "There is no change to undo"),
        ("undo.n_clicks", {"history_data": [3]}, "the page: history"),
        ("undo.n_clicks", {"history_data": ["{"]}, "the setting in the browser"),
        ("data.value", {"data_value": 3}, "the page: data"),
        ("nothing.value", {}, ""),
        ("nothing-slider.value", {}, ""),
    ],
)
def test_values_of_no_control_are_refused(page: Page, cause: str, values: dict[str, Any], said: str) -> None:
    answer = changed(page.post("setting.data", cause, setting_data=RIGHT, first_data=RIGHT, **values))
    assert said in answer.get("problem", {}).get("children", "")


def test_the_first_answer_is_unchanged(page: Page) -> None:
    answer = changed(page.post("setting.data", "", first_data=RIGHT))
    assert json.loads(answer["setting"]["data"]) == json.loads(RIGHT)
    assert answer["problem"] == {"children": "", "hidden": True}


def test_a_body_that_is_too_long_is_not_read(page: Page) -> None:
    from sfumato.explore.application import MAX_BODY_BYTES

    class Endless:
        """Gives bytes for ever, and counts them."""

        given = 0

        def read(self, size: int = -1) -> bytes:
            assert 0 <= size <= 2**20
            self.given += size
            return b" " * size

    for length in (MAX_BODY_BYTES + 1, 300_000_000):
        body = Endless()
        answer = page.client.post(
            UPDATE, base_url=BASE, headers={"Origin": BASE}, content_type="application/json",
            environ_overrides={"wsgi.input": body, "CONTENT_LENGTH": str(length)},
        )  # fmt: skip
        assert answer.status_code == 413
        assert body.given == 0


def test_the_last_change_is_undone(page: Page) -> None:
    later = EditedSpec.from_json(RIGHT).with_change("training.rounds", 2).to_json()
    undone = changed(page.post("setting.data", "undo.n_clicks", setting_data=later, history_data=[RIGHT]))
    assert undone["setting"]["data"] == RIGHT
    assert undone["history"]["data"] == []
