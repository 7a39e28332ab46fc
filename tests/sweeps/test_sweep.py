import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import fast_python
import pandas as pd
import pytest
import torch
from places import TESTS
from scipy import stats

import sfumato as sf
from sfumato.cli import main
from sfumato.errors import RunError, SpecError
from sfumato.report import compare, write_report
from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.lock import only_writer
from sfumato.run_folder.reader import load_run
from sfumato.run_folder.seal import read_seal

SMALL = ["topology.edges=2", "topology.devices_per_edge=4", "training.rounds=2", "training.steps_per_round=4",
         "training.edge_every=2", "training.batch_size=4"]  # fmt: skip
pytestmark = pytest.mark.usefixtures("fast_workers")  # `swept` starts its workers before, as users do
DAMAGED = ("result.json", "point.yaml", "manifest.json")
PROTOCOL = ("protocol", "privacy.noise.epsilon")
OVER = {"trust.trusted_edges": [0, 1], PROTOCOL: [("h2fdp", 8), ("hfl", 8)]}


def small(out, over=OVER, *, workers=1, overrides=(), **options):
    """A small sweep; one worker, since to start another takes longer than what it does."""
    return sf.sweep("quickstart", over, out=out, overrides=[*SMALL, *overrides], workers=workers, **options)


@pytest.fixture
def one_thread():
    """As every worker of a sweep has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def metrics_of(sweep):
    """All that runs measured, but wall times."""
    return {
        run.relative_to(sweep.folder): load_run(run).metrics.drop(columns="wall_time_s")
        for run in sorted(sweep.folder.glob("points/*/seed-*"))
    }


def same(left, right):
    assert left.keys() == right.keys()
    for name, frame in left.items():
        pd.testing.assert_frame_equal(frame, right[name], check_exact=True)


@pytest.fixture(scope="module")
def accounted(tmp_path_factory):
    return small(tmp_path_factory.mktemp("accounted"), seeds=2, account_only=True)


@pytest.fixture(scope="module")
def swept(accounted, tmp_path_factory):
    """Trained where it had been accounted for before."""
    out = copied(accounted, tmp_path_factory.mktemp("swept"))
    return small(out, seeds=2, workers=2)


def copied(sweep, folder):
    """A copy of a sweep's folder, to be changed: to sweep takes longer."""
    return Path(shutil.copytree(sweep.folder, folder / "copy"))


class TestSweep:
    def test_has_a_row_for_every_point_and_seed(self, swept):
        table = swept.table
        assert swept.failures == ()
        assert table[["trust.trusted_edges", "protocol", "seed"]].values.tolist() == [
            [share, protocol, seed] for share in (0, 1) for protocol in ("h2fdp", "hfl") for seed in (0, 1)
        ]
        assert swept.keys == ("trust.trusted_edges", "protocol", "privacy.noise.epsilon")
        assert (table["error"] == "").all()
        assert (table["rounds"] == 2).all()
        for row in table.to_dict("records"):
            run = load_run(swept.folder / "points" / row["point"] / f"seed-{row['seed']}")
            assert run.finished
            assert run.spec_dict["seed"] == row["seed"]
            assert run.spec_dict["protocol"] == row["protocol"]
            assert row["accuracy"] == run.metrics["accuracy"].iloc[-1]
            assert row["best_accuracy"] == run.metrics["accuracy"].max()
            for total in ("bytes_up", "bytes_down", "energy_j", "delay_s"):
                assert row[total] == pytest.approx(run.metrics[total].sum(), rel=1e-12, nan_ok=True)
            assert row["epsilon:cloud"] == run.metrics["epsilon:cloud"].iloc[-1]
        noised = table["protocol"] == "h2fdp"
        assert table.loc[noised, "epsilon:cloud"].to_numpy() == pytest.approx(8.0)
        assert (table.loc[~noised, "epsilon:cloud"] == math.inf).all()

    def test_runs_are_those_that_run_makes(self, swept, tmp_path):
        row = swept.table.iloc[0]
        spec = sf.load_spec("quickstart", [*SMALL, "trust.trusted_edges=0", "privacy.noise.epsilon=8"])
        run = sf.run(spec, out=tmp_path / "run")
        assert run.metrics["accuracy"].iloc[-1] == pytest.approx(row["accuracy"], abs=0.01)
        assert run.metrics["noise_std"].sum() == pytest.approx(
            load_run(swept.folder / "points" / row["point"] / "seed-0").metrics["noise_std"].sum(), rel=1e-5
        )

    def test_the_number_of_workers_changes_nothing(self, swept, tmp_path):
        alone = small(
            tmp_path,
            {"trust.trusted_edges": [1], ("protocol", "privacy.noise.epsilon"): [("h2fdp", 8)]},
        )
        same(metrics_of(alone), {k: v for k, v in metrics_of(swept).items() if k in metrics_of(alone)})

    def test_means_and_intervals(self, swept):
        summary = swept.summary()
        assert len(summary) == 4
        for row in summary.to_dict("records"):
            found = swept.table[swept.table["point"] == row["point"]]
            low, high = stats.t.interval(0.95, 1, found["accuracy"].mean(), stats.sem(found["accuracy"]))
            assert row["accuracy"] == pytest.approx((low + high) / 2)
            assert row["accuracy_half_width"] == pytest.approx((high - low) / 2)
            assert row["epsilon:cloud"] == found["epsilon:cloud"].max()
            assert row["seeds"] == 2

    def test_a_prompt_and_a_notebook_show_the_points(self, swept):
        keys = "trust.trusted_edges, protocol, privacy.noise.epsilon"
        assert repr(swept) == f"<Sweep {swept.folder}: 4 points of {keys}, 8 runs>"
        shown = swept._repr_html_()
        assert shown.count("<tr>") == 4
        assert "<th>accuracy %</th>" in shown

    def test_is_read_back(self, swept):
        again = sf.load_sweep(swept.folder)
        pd.testing.assert_frame_equal(again.table, swept.table)
        assert (again.failures, again.keys, again.observers) == ((), swept.keys, ("cloud", "edge"))
        assert (
            again.report(swept.folder / "again.html").read_text()
            == (swept.folder / "report.html").read_text()
        )

    def test_compare_takes_its_points(self, swept):
        compared = compare(sorted(swept.folder.glob("points/*"))).table()
        assert compared["seeds"].tolist() == [2] * 4
        assert sorted(compared["final_accuracy"]) == pytest.approx(sorted(swept.summary()["accuracy"]))


class TestResume:
    def test_what_is_accounted_for_is_trained_later(self, accounted, swept):
        assert accounted.table["accuracy"].isna().all()
        assert accounted.table["epsilon:cloud"].notna().all()
        assert swept.table["accuracy"].notna().all()
        assert swept.table["epsilon:cloud"].tolist() == accounted.table["epsilon:cloud"].tolist()

    def test_keeps_what_is_done_and_adds_what_is_new(self, swept, tmp_path):
        out = copied(swept, tmp_path)
        before = {path: path.stat().st_mtime_ns for path in out.glob("points/*/*/result.json")}
        more = small(out, {"trust.trusted_edges": [1, 0.5], PROTOCOL: OVER[PROTOCOL][:1]}, seeds=2)
        assert len(before) == 8
        assert len(more.table) == 4
        assert more.table["accuracy"].notna().all()
        assert {path: path.stat().st_mtime_ns for path in before} == before
        kept = more.table[(more.table["trust.trusted_edges"] == 1) & (more.table["seed"] == 0)].iloc[0]
        assert kept["point"] in set(swept.table["point"])
        same_point = (swept.table["point"] == kept["point"]) & (swept.table["seed"] == 0)
        assert kept["accuracy"] == swept.table[same_point]["accuracy"].iloc[0]

    def test_notices_another_spec(self, accounted, tmp_path):
        with pytest.raises(
            SpecError, match=r"holds point trusted_edges=0.* .*: training.rounds was 2 and now is 3"
        ):
            small(copied(accounted, tmp_path), seeds=2, account_only=True, overrides=["training.rounds=3"])

    def test_refuses_a_folder_of_something_else(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(SpecError, match="is a file"):
            small(tmp_path / "file")
        (tmp_path / "spec.yaml").write_text("")
        with pytest.raises(SpecError, match="holds a run"):
            small(tmp_path)
        with pytest.raises(SpecError, match="is no finished sweep"):
            sf.load_sweep(tmp_path)

    def test_damaged_points_are_said_and_accounted_for_again(self, accounted, tmp_path, caplog):
        out = copied(accounted, tmp_path)
        runs = sorted(out.glob("points/*/seed-*"))
        damaged = [run / name for run, name in zip(runs, DAMAGED, strict=False)]
        whole = {path: path.read_bytes() for run in runs for path in run.iterdir()}
        for path in damaged:
            flipped = bytearray(whole[path])
            flipped[len(flipped) // 2] ^= 1
            # the specs of a point are compared before anything is read
            path.write_bytes(whole[path] + b"# more\n" if path.name == "point.yaml" else flipped)
        again = small(out, seeds=2, account_only=True)
        pd.testing.assert_frame_equal(again.table, accounted.table)
        assert {path: path.read_bytes() for run in runs for path in run.iterdir()} == whole
        said = sorted({record.getMessage() for record in caplog.records})
        assert len(said) == len(damaged) == 3
        for line, path in zip(said, sorted(map(str, damaged)), strict=True):
            assert line.startswith(path)
            assert line.endswith("; the point is accounted for again")

    def test_an_interrupted_sweep_ends_as_runs_never_interrupted(self, one_thread, no_report, tmp_path):
        long = "training.rounds=40"
        sets = [part for change in [*SMALL, long] for part in ("--set", change)]
        over = ["--over", "trust.trusted_edges=0,1", "--workers", "1", "--out", tmp_path / "cut"]
        cut = fast_python.Popen(
            [sys.executable, "-m", "sfumato", "sweep", "quickstart", *over, *sets],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        until = time.monotonic() + 60
        while not list((tmp_path / "cut").glob("points/*/*/spec.yaml")) and time.monotonic() < until:
            time.sleep(0.02)
        cut.send_signal(signal.SIGINT)
        _, said = cut.communicate(timeout=60)
        assert cut.returncode == 130
        assert "Traceback" not in said + (tmp_path / "cut" / "workers.log").read_text()
        assert "continue with: sfumato sweep quickstart --over" in said
        assert not list((tmp_path / "cut").glob("points/*/*/model.pt"))
        done = small(tmp_path / "cut", {"trust.trusted_edges": [0, 1]}, overrides=[long])
        assert done.failures == ()
        whole = {}
        for share in (0, 1):
            name = Path("points", f"trusted_edges={share}", "seed-0")
            spec = sf.load_spec("quickstart", [*SMALL, long, f"trust.trusted_edges={share}"])
            metrics = sf.run(spec, out=tmp_path / "whole" / name, device="cpu").metrics
            whole[name] = metrics.drop(columns="wall_time_s")
        same(metrics_of(done), whole)


class TestFolder:
    """A sweep's folder cannot lie either: points that are done, tables, one writer."""

    ONE = {"trust.trusted_edges": [0]}  # noqa: RUF012
    POINT = Path("points", "trusted_edges=0", "seed-0")

    def test_points_share_the_script_that_draws(self, swept):
        (script,) = swept.folder.glob("plotly-*.min.js")
        assert script.stat().st_size > 10**6
        reports = list(swept.folder.glob("points/*/*/report.html"))
        assert len(reports) == 8
        for report in reports:
            page = report.read_text()
            assert len(page) < 10**6
            assert f'src="../../../{script.name}"' in page
            assert (report.parent / "../../.." / script.name).samefile(script)

    def test_the_page_of_the_sweep_is_one_file_with_links_to_the_reports(self, swept):
        page = (swept.folder / "report.html").read_text()
        assert len(page) > 10**6
        assert "plotly-" not in re.sub("<script>.*?</script>", "", page, flags=re.DOTALL)
        assert "on whether a device&#x27;s data were used" in page
        linked = re.findall('<a href="(points/[^"]+)"', page)
        assert len(linked) == 8
        assert all((swept.folder / unquote(path)).is_file() for path in linked)

    @pytest.mark.needs("chromium")
    def test_a_browser_draws_a_page_that_shares_it(self, swept, tmp_path):
        page = next(swept.folder.glob("points/*/*/report.html"))
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
        command = ["chromium", *flags, f"--user-data-dir={tmp_path}", page.as_uri()]
        drawn = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        root = re.search("<html[^>]*>", drawn)[0]
        assert f'data-drawn="{drawn.count("<figure ")}"' in root
        assert "data-errors" not in root

    def test_elsewhere_a_page_of_a_point_stands_alone(self, swept, tmp_path):
        page = sf.load_run(next(swept.folder.glob("points/*/*"))).path
        assert write_report([page], tmp_path / "report.html").stat().st_size > 10**6

    def test_points_that_are_damaged_are_mended_and_those_that_cannot_be_are_named(self, swept, tmp_path):
        out = copied(swept, tmp_path)
        runs = sorted(out.glob("points/*/seed-*"))
        files = ["model.pt", "metrics.parquet", "report.html", "spec.yaml", "checkpoint.pt"]
        damaged = [run / file for run, file in zip(runs, files, strict=False)]
        whole = {path: path.read_bytes() for path in [*damaged, *(run / "result.json" for run in runs)]}
        for path in damaged:
            path.write_bytes(whole[path][:-3])
        (failure,) = small(out, seeds=2).failures
        lost = damaged.pop()
        assert "checkpoint.pt: is damaged" in failure.message
        assert f"{failure.point}/seed-{failure.seed}" == lost.parent.relative_to(out / "points").as_posix()
        for path, before in whole.items():
            assert (path.read_bytes() == before) == (path != lost), path
        assert all(check_folder(run) == [] for run in runs if run != lost.parent)

    @pytest.mark.parametrize("file", ["sweep.parquet", "sweep.json"])
    def test_a_table_that_is_damaged_is_refused(self, file, accounted, tmp_path):
        path = copied(accounted, tmp_path) / file
        path.write_bytes(path.read_bytes() + b" ")
        with pytest.raises(RunError, match=rf"{file}: has SHA-256"):
            sf.load_sweep(path.parent)

    def test_two_sweeps_do_not_share_a_folder(self, tmp_path):
        with only_writer(tmp_path), pytest.raises(SpecError, match="another process is writing there"):
            small(tmp_path, self.ONE, account_only=True)
        with only_writer(tmp_path / self.POINT):
            (failure,) = small(tmp_path, self.ONE, account_only=True).failures
        assert "another process is writing there" in failure.message

    def test_a_file_that_a_point_was_made_from_may_not_change(self, tmp_path):
        sites = tmp_path / "sites.yaml"
        sites.write_text("sites: [{devices: 3}, {devices: 4}]")
        tree = [f"topology={{kind: tree, file: '{sites}'}}", "training.rounds=1", "data.partition=iid"]
        over = {"privacy.noise.multiplier": [1, 2]}
        sf.sweep("quickstart", over, out=tmp_path / "sweep", overrides=tree, account_only=True)
        sites.write_text("sites: [{devices: 3}, {devices: 40}]")
        with pytest.raises(SpecError, match=r"another spec: topology.sites\[1\].devices was 4 and now is 40"):
            sf.sweep("quickstart", over, out=tmp_path / "sweep", overrides=tree, account_only=True)

    @pytest.mark.parametrize(("end", "count"), [(signal.SIGKILL, 1), (signal.SIGTERM, 2)])
    def test_workers_end_with_their_parent(self, end, count, tmp_path, request):
        sets = [part for change in [*SMALL, "training.rounds=50000"] for part in ("--set", change)]
        command = [
            "sweep",
            "quickstart",
            "--over",
            "seed=1,2",
            *sets,
            "--workers",
            str(count),
            "--out",
            str(tmp_path),
        ]
        parent = fast_python.Popen(
            [sys.executable, "-m", "sfumato", *command],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        request.addfinalizer(parent.communicate)  # also if an assertion fails
        request.addfinalizer(parent.kill)
        until = time.monotonic() + 120
        while len(sealed(tmp_path)) < count and time.monotonic() < until:
            time.sleep(0.05)
        before = sealed(tmp_path)
        time.sleep(1.0)  # further rounds, not saved yet
        workers = loky_workers(parent.pid)
        assert len(before) == len(workers) == count
        parent.send_signal(end)
        _, said = parent.communicate(timeout=60)
        assert parent.returncode == (130 if end == signal.SIGTERM else -signal.SIGKILL), said
        while any(map(is_alive, workers)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(map(is_alive, workers))
        for folder in before:
            assert len(load_run(folder).metrics) > before[folder]  # they saved what they had
            assert not list(folder.glob(".*.tmp"))
        assert "Traceback" not in (tmp_path / "workers.log").read_text()


def sealed(sweep):
    """Rounds that are saved, by run; only runs with any."""
    seals = {path.parent: read_seal(path.parent) for path in sweep.glob("points/*/*/checkpoint.pt")}
    return {folder: seal.rounds.rounds for folder, seal in seals.items() if seal.rounds.rounds}


def loky_workers(parent):
    """Workers that ``parent`` started; not the processes that watch over what they share."""
    found = [path.read_text() for path in Path(f"/proc/{parent}/task").glob("*/children")]
    started = [int(number) for numbers in found for number in numbers.split()]
    return [number for number in started if b"popen_loky" in Path(f"/proc/{number}/cmdline").read_bytes()]


def is_alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class TestFailures:
    def test_lose_nothing_else_and_are_tried_again(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(TESTS / "support"))
        kinds = ["softmax", "sweep_models:dies", "sweep_models:fails", "no_such_module:model"]
        ways = small(tmp_path, {"model.kind": kinds, "trust.trusted_edges": [[0], [7]]})
        table = ways.table.set_index(["model.kind", "trust.trusted_edges"])
        done = table[table["error"] == ""]
        assert list(done.index) == [("softmax", "[0]")]
        assert done["accuracy"].notna().all()
        said = table["error"]
        died = "its process was killed (SIGKILL: out of memory?); given up after 3 tries"
        assert said["sweep_models:dies", "[0]"] == died
        assert "the factory failed: ZeroDivisionError" in said["sweep_models:fails", "[0]"]
        assert "no_such_module" in said["no_such_module:model", "[0]"]
        assert "trusted_edges" in said["softmax", "[7]"]
        log = (ways.folder / "workers.log").read_text()
        assert "a library that prints" in log
        assert len(ways.failures) == 7
        page = (ways.folder / "report.html").read_text()
        assert "<h2>Failures</h2>" in page
        again = small(tmp_path, {"model.kind": ["softmax"], "trust.trusted_edges": [[0], [7]]})
        assert [bool(error) for error in again.table["error"]] == [False, True]


class TestAccountOnly:
    def test_needs_no_torch(self, tmp_path):
        code = (
            "import sys, sfumato as sf; from pathlib import Path; from sfumato.pool.worker import do_job;"
            "from sfumato.sweeps.point_jobs import account_point;"
            "over = {'training.rounds': [1, 2]};"
            "swept = sf.sweep('quickstart', over, out=sys.argv[1], account_only=True, workers=1);"
            "spec = sf.load_spec('quickstart').model_dump(mode='json', by_alias=True, exclude_none=True);"
            "out = Path(sys.argv[1]); said = do_job(account_point, (spec, out / 'one'), out / 'log');"
            "print(len(swept.table), 'torch' in sys.modules, said)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["2", "False"]

    def test_says_what_account_says(self, tmp_path):
        over = {"privacy.noise.multiplier": [1, 4], "training.rounds": [1, 3]}
        watch = "watch=[cloud, peer, 'cloud,device:1']"
        done = small(tmp_path, over, account_only=True, overrides=[watch])
        assert done.observers == ("cloud", "peer", "cloud,device:1")
        for row in done.table.to_dict("records"):
            noise = f"privacy.noise.multiplier={row['privacy.noise.multiplier']}"
            report = sf.account(
                sf.load_spec("quickstart", [*SMALL, noise, f"training.rounds={row['training.rounds']}"])
            )
            worst = max(g.epsilon for g in report.guarantees if g.observer == "cloud")
            assert row["epsilon:cloud"] == worst
            assert row["epsilon:cloud,device:1"] >= worst
            assert (
                json.loads((tmp_path / "points" / row["point"] / "seed-0" / "privacy.json").read_text())
                == report.to_dict()
            )


class TestCommand:
    @pytest.fixture
    def here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "80")
        return tmp_path

    def test_prints_a_table_and_where_the_report_is(self, here, capsys):
        sets = [part for change in SMALL for part in ("--set", change)]
        over = [
            "--over",
            "trust.trusted_edges=0,1,x",
            "--over",
            "privacy.noise.epsilon,privacy.noise.for=2:cloud,4:edge",
        ]
        status = main(
            ["sweep", "quickstart", *over, *sets, "--account-only", "--seeds", "2", "--workers", "1"]
        )
        captured = capsys.readouterr()
        assert status == 1
        assert all(len(line) <= 80 for line in captured.out.splitlines())
        lines = captured.out.splitlines()
        assert lines[0].split()[-6:] == ["ε", "cloud", "ε", "edge", "raw", "devices"]
        assert [line.split()[:3] for line in lines[2:6]] == [
            ["0,", "2,", "cloud"], ["0,", "4,", "edge"], ["1,", "2,", "cloud"], ["1,", "4,", "edge"],
        ]  # fmt: skip
        assert "4 points with results; 8 runs finished, 2 failed" in captured.out
        assert Path("runs/quickstart-sweep/report.html").is_file()
        assert "sweep folder: runs/quickstart-sweep" in captured.out
        assert captured.err.count("failed: --over trust.trusted_edges: got 'x'; must be a share") == 2
        assert len(captured.err.splitlines()) == 10

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "Missing option '--over'"),
            (["--over", "x"], "--over x: must be KEY=A,B"),
            (["--over", "sed=1,2"], "--over sed: "),
            (["--over", "training.rounds=0"], "--over training.rounds: got 0; must be a whole number"),
            (["--over", "seed=1", "--seeds", "0"], "--seeds"),
            (["--over", "seed=1", "--workers", "0"], "--workers"),
            (["--over", "seed=1", "--on", "cloud"], "--on: got 'cloud'; must be local, ray or ray://ADDRESS"),
            (
                ["--over", "seed=1", "--on", "ray://"],
                "--on: got 'ray://'; must be local, ray or ray://ADDRESS",
            ),
        ],
    )
    def test_a_wrong_call_ends_with_2(self, arguments, said, here, capsys):
        assert main(["sweep", "quickstart", *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert said in captured.err
        assert not list(here.iterdir())
