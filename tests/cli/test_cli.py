import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import types
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lost_signals import send_lost
from places import ROOT, TESTS

import sfumato
from sfumato.cli import main
from sfumato.errors import RunError, SpecError
from sfumato.run_folder.manifest import Manifest, write_manifest
from sfumato.run_folder.metrics_table import METRIC_COLUMNS, write_metrics
from sfumato.run_folder.reader import load_run, write_ledger, write_privacy, write_spec
from sfumato.spec import builtin_names, builtin_text, load_spec
from sfumato.spec.frozen import FrozenSpec

SPECS = TESTS / "spec" / "specs"
HDP = ROOT / "examples" / "hdp"
CONTROL = ROOT / "examples" / "h2fdp" / "control.yaml"
COMMANDS = [
    "run",
    "account",
    "validate",
    "show",
    "init",
    "report",
    "compare",
    "sweep",
    "plan",
    "attack",
    "audit",
    "verify",
    "statement",
    "deploy",
    "party",
]
CALLS_FOR_HELP = ["--help", *(f"{command} --help" for command in COMMANDS)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def written(capsys):
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    assert all(len(line) <= 80 for line in captured.out.splitlines()), captured.out
    return captured


def refused(capsys, *arguments):
    """The one message of a call that must end with status 2."""
    assert main(arguments) == 2
    captured = written(capsys)
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1
    return lines[0].removeprefix("sfumato: ")


def in_a_process(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_a_reader_that_stops_reading_is_no_error():
    """`sfumato account SPEC | head -1` said that code which was called had failed."""
    command = [sys.executable, "-m", "sfumato", "account", "quickstart"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.fixture(scope="module")
def helped():
    """What each call prints and has loaded, and its status: of a process with the command line alone."""
    code = (
        "import os, sys; from sfumato.cli import main\n"
        "for call in sys.argv[1:]:\n"
        "    if not os.fork():\n"
        "        status = main(call.split())\n"
        "        print('LOADED', *sorted(sys.modules), flush=True); os._exit(status)\n"
        "    print('STATUS', os.waitstatus_to_exitcode(os.wait()[1]), flush=True)"
    )
    done = in_a_process("-c", code, *CALLS_FOR_HELP)
    found = re.findall(r"(.*?)LOADED (.*?)\nSTATUS (\d+)\n", done.stdout, re.DOTALL)
    return dict(zip(CALLS_FOR_HELP, found, strict=True))


class TestStart:
    @pytest.mark.parametrize("call", CALLS_FOR_HELP)
    def test_help_imports_nothing_heavy(self, call, helped):
        said, modules, status = helped[call]
        assert status == "0"
        assert "Usage: sfumato" in said
        loaded = {name.partition(".")[0] for name in modules.split()}
        heavy = {
            "torch",
            "pandas",
            "pydantic",
            "plotly",
            "rich",
            "numpy",
            "scipy",
            "yaml",
            "dp_accounting",
            "sklearn",
        }
        if call != "--help":
            heavy.remove("pydantic")  # typer's own, for the options of a command
        assert loaded & heavy == set()

    def test_python_m_sfumato_is_the_same(self):
        assert in_a_process("-m", "sfumato", "--help").stdout.startswith("Usage: sfumato")

    def test_import_loads_nothing_heavy_and_exports_what_it_says(self):
        code = "import sys, sfumato; print(*sys.modules)"
        assert {"torch", "pandas", "pydantic", "numpy"} & set(
            in_a_process("-c", code).stdout.split()
        ) == set()
        assert all(getattr(sfumato, name) is not None for name in sfumato.__all__)
        assert set(sfumato.__all__) <= set(dir(sfumato))
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = sfumato.nothing

    @pytest.mark.parametrize(
        "arguments",
        [
            ["nonsense"],
            ["run"],
            ["account", "--nonsense"],
            ["compare"],
            ["report"],
        ],
    )
    def test_a_wrong_call_ends_with_2(self, arguments, capsys):
        assert main(arguments) == 2
        said = written(capsys).err
        assert "Error" in said or said.startswith("sfumato: --nonsense: is no option")


class TestErrors:
    @pytest.fixture
    def failing(self, monkeypatch):
        def fail_with(error):
            # A mock raises from within the standard library; what this file raises counts as a user's code.
            monkeypatch.setattr("sfumato.schedule.resolve.resolve", Mock(side_effect=error))

        return fail_with

    @pytest.mark.parametrize(
        ("error", "status", "said"),
        [
            (RunError("the disk is full"), 1, "sfumato: the disk is full"),
            (
                SpecError("data.partition", "x", "must fit"),
                2,
                "sfumato: quickstart: data.partition: got 'x'; must fit",
            ),
            (
                KeyError("a"),
                1,
                "sfumato: internal error: KeyError: 'a' (run again with --debug for a traceback)",
            ),
        ],
    )
    def test_an_error_is_one_line_and_a_status(self, error, status, said, failing, capsys):
        failing(error)
        assert main(["show", "quickstart"]) == status
        assert written(capsys).err == said + "\n"

    @pytest.mark.parametrize(
        "arguments", [["--debug", "show", "quickstart"], ["show", "quickstart", "--debug"]]
    )
    def test_debug_shows_the_traceback_and_keeps_the_status(self, arguments, failing, capsys):
        failing(RunError("the disk is full"))
        assert main(arguments) == 1
        error = capsys.readouterr().err
        assert "Traceback" in error
        assert error.endswith("sfumato: the disk is full\n")

    def test_an_interrupt_ends_with_130(self, failing, capsys):
        failing(KeyboardInterrupt())
        assert main(["show", "quickstart"]) == 130
        assert "Traceback" not in capsys.readouterr().err

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    @pytest.mark.parametrize("error", [RunError("no result"), RuntimeError("no result")])
    def test_an_interrupt_that_was_lost_ends_with_130_too(self, error, number, monkeypatch, capsys):
        """A library that drops the exception of a signal goes on, and fails a little later."""

        def lose(*_, **__):
            send_lost(number)
            raise error

        monkeypatch.setattr("sfumato.schedule.resolve.resolve", lose)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            assert main(["show", "quickstart"]) == 130
        finally:
            signal.signal(signal.SIGINT, before)
        assert "interrupted" in capsys.readouterr().err

    def test_a_terminal_without_greek_is_no_error(self):
        done = in_a_process("-m", "sfumato", "account", "quickstart", PYTHONIOENCODING="ascii")
        assert done.returncode == 0
        assert done.stdout.isascii()


class TestValidate:
    @pytest.mark.parametrize("name", builtin_names())
    def test_builtin_specs_are_valid(self, name, capsys):
        assert main(["validate", name]) == 0
        assert written(capsys).out.startswith(f"{name}: valid\n")

    @pytest.mark.parametrize("path", sorted(SPECS.glob("ogl-*.yaml")), ids=str)
    def test_groups_are_valid(self, path, capsys):
        assert main(["validate", str(path)]) == 0
        assert capsys.readouterr().out == f"{path}: valid\n"
        refused(capsys, "validate", str(path), "--set", "compression={kind: random, ratio: 0.5}")

    @pytest.mark.parametrize("path", [SPECS / "hdp-case3.yaml", SPECS / "pfels.yaml"], ids=str)
    def test_sums_and_the_air_are_valid(self, path, capsys):
        assert main(["validate", str(path)]) == 0
        assert capsys.readouterr().out.startswith(f"{path}: valid\n")
        refused(capsys, "validate", str(path), "--set", "transport={devices_to_nobody: air}")

    @pytest.mark.parametrize(
        ("base", "change", "said"),
        [
            ("quickstart", "training.edge_every=21", "--set training.edge_every: got 21; must be at most"),
            (
                "quickstart",
                "data.partition.labels_per_device=11",
                "data.partition.labels_per_device: got 11;",
            ),
            ("quickstart", "trust.trusted_edges=[5]", "trust.trusted_edges: got 5; there are edges 0 to 4"),
            ("quickstart", "privacy.noise.epsilon=0", "--set privacy.noise.epsilon: got 0; must be"),
            ("quickstart", "privacy.delta=1", "--set privacy.delta: got 1; must be"),
            ("quickstart", "topology.devices_per_edge=4000", "quickstart: data.partition"),
            (
                "quickstart",
                "training.participation.count=41",
                "--set training.participation.count: got 41; must be",
            ),
            ("quickstart", "privacy.clip=null", "--set privacy.clip: is required: noise needs a clip"),
            ("dp-fedavg", "topology.devices=70000", "dp-fedavg: data"),
        ],
    )
    def test_impossible_combinations_are_refused(self, base, change, said, capsys):
        assert said in refused(capsys, "validate", base, "--set", change)

    def test_a_file_is_named(self, here, capsys):
        Path("mine.yaml").write_text(builtin_text("quickstart").replace("rounds: 15", "rounds: 0"))
        said = refused(capsys, "validate", "mine.yaml")
        allowed = "must be a whole number from 1 to 1,000,000: a run keeps a row of every round"
        lines = Path("mine.yaml").read_text().splitlines()
        number = next(n for n, line in enumerate(lines, start=1) if "rounds: 0" in line)
        assert said == f"mine.yaml: training.rounds: got 0; {allowed} (line {number})"

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        key=st.sampled_from(
            ["name", "training", "training.rounds", "topology", "privacy", "privacy.noise", "data.partition"]
        ),
        value=st.none()
        | st.booleans()
        | st.floats()
        | st.integers()
        | st.text()
        | st.lists(st.integers())
        | st.just({"kind": 3}),
    )
    def test_whatever_a_file_holds_the_answer_is_0_or_2_and_a_line_for_each_problem(
        self, key, value, tmp_path_factory, capsys, monkeypatch
    ):
        monkeypatch.setattr(
            "sfumato.schedule.resolve.resolve", lambda spec: types.SimpleNamespace(notes=())
        )  # loading is what is tried here
        document = yaml.safe_load(builtin_text("quickstart"))
        section = document
        for part in key.split(".")[:-1]:
            section = section[part]
        section[key.split(".")[-1]] = value
        path = tmp_path_factory.getbasetemp() / "any.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        status = main(["validate", str(path)])
        captured = capsys.readouterr()
        assert status in (0, 2)
        if status == 0:
            assert len(captured.out.splitlines()) == 1
        else:  # a line for each problem
            assert captured.err
            assert all(line.startswith(f"sfumato: {path}") for line in captured.err.splitlines())
        assert "Traceback" not in captured.err


class TestAccount:
    def test_json_is_clean_and_keeps_the_contract(self, capsys):
        assert main(["account", "h2fdp-fmnist", "--json"]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        found = json.loads(captured.out, parse_constant=pytest.fail)
        assert found["spec"] == "h2fdp-fmnist"
        assert {"unit", "observer", "stands_for", "epsilon", "bounds", "why"} <= set(found["guarantees"][0])
        assert any(row["epsilon"] == "inf" for row in found["guarantees"])
        assert any(not claim["holds"] for claim in found["claims"])

    def test_the_table_fits_80_columns_worst_rows_first(self, capsys):
        assert main(["account", "h2fdp-fmnist"]) == 0
        out = written(capsys).out
        assert "δ = 1e-5" in out
        assert "All rows: neighbours zero-out" in out
        assert out.index("∞") < out.index("45.45") < out.index("15.23")
        assert re.search(r"H2FDP Prop. 3.1 .* no\b", out)
        assert "is trusted with raw updates" in out

    def test_one_pair_and_its_curve(self, capsys):
        arguments = [
            "account",
            "quickstart",
            "--unit",
            "device:40",
            "--observer",
            "cloud",
            "--delta",
            "1e-6",
            "--curve",
        ]
        assert main(arguments) == 0
        out = written(capsys).out
        assert "δ = 1e-6" in out
        assert out.count("device:40 ") == 3
        assert "δ=1e-12" in out

    def test_set_changes_the_spec(self, capsys):
        assert main(["account", "quickstart", "--json", "--set", "privacy.noise=none"]) == 0
        captured = capsys.readouterr()
        assert {row["epsilon"] for row in json.loads(captured.out)["guarantees"]} == {"inf"}
        assert "nobody has a guarantee" in captured.out

    def test_long_lists_end_with_how_to_see_all(self, capsys, monkeypatch):
        from sfumato.accounting import account
        from sfumato.cli.account import MOST_ROWS

        report = account(load_spec("quickstart"))
        row = report.guarantees[0]
        many = dataclasses.replace(report, guarantees=(row,) * (MOST_ROWS + 7))
        monkeypatch.setattr(sys.modules["sfumato.accounting"], "account", lambda *_, **__: many)
        assert main(["account", "quickstart"]) == 0
        assert "… 7 more rows; --json shows all" in written(capsys).out

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--unit", "device:999"],
            ["--observer", "edge:9"],
            ["--unit", "device:0", "--observer", "cloud,device:0"],
            ["--delta", "0"],
            ["--delta", "nan"],
        ],
    )
    def test_parties_and_deltas_that_do_not_exist_are_refused(self, arguments, capsys):
        assert refused(capsys, "account", "quickstart", *arguments).startswith("--")

    def test_coalitions_of_several_classes_fit_the_page(self, capsys):
        assert main(["account", str(HDP / "c7.yaml")]) == 0
        below = written(capsys).out.partition("colluding devices")[2].splitlines()[1:]
        rows = [line.split() for line in below]
        assert [row[0] for row in rows if len(row) == 4] == ["device:0", "device:10", "device:20"]
        assert [row[0] for row in rows if len(row) == 3].count("33") == 3


class TestShow:
    def test_a_small_network_is_drawn(self, capsys):
        assert main(["show", "three-tier"]) == 0
        out = written(capsys).out
        assert re.search(r"region:0, trusted, noise ×1\b", out)
        assert "4 devices, each adds noise ×1" in out
        assert "24 devices under 6 cabinets under 2 regions under the cloud" in out
        assert "region aggregation after local step 10; global" in " ".join(out.split())

    def test_who_adds_noise_in_a_zone_is_counted(self, capsys):
        assert main(["show", str(HDP / "c5.yaml")]) == 0
        out = written(capsys).out
        assert "10 devices, 5 of them add noise ×1.1" in out
        assert "multiplier 1.1, added by 0.5 of every zone's devices, the cloud" in " ".join(out.split())

    def test_a_large_one_is_summed_up(self, capsys):
        assert main(["show", "h2fdp-fmnist", "--set", "topology.edges=100"]) == 0
        assert re.search(r"edge +100 +50 +50 ", written(capsys).out)

    @pytest.mark.parametrize("change", ["training.participation.rate=0.5", "training.participation.count=3"])
    def test_sampling_is_said(self, change, capsys):
        assert main(["show", "quickstart", "--set", "privacy.noise={multiplier: 1}", "--set", change]) == 0
        assert re.search(
            r"participation +(every device with probability 0.5|3 devices of every edge)", written(capsys).out
        )

    def test_control_is_said(self, capsys):
        assert main(["show", str(CONTROL)]) == 0
        out = " ".join(written(capsys).out.split())
        assert "control chooses step size, local steps and participants in each round" in out
        assert "participation" not in out

    def test_groups(self, capsys):
        assert main(["show", str(SPECS / "ogl-ring.yaml")]) == 0
        out = written(capsys).out
        assert "100 workers in 4 groups; 4 of them in more than one" in out
        assert re.search(r"^0 +26 +1 \+1, 3 \+1 +trusted +0\.7 +0\.05 +master ×2 *$", out, re.MULTILINE)
        assert "(S = 10)" in out
        assert "199 of every group, with noise, one per round" in out

    def test_groups_by_interval_and_untrusted(self, capsys):
        changes = ["protocol=dp-ogl-local", "trust.trusted_aggregators=[]", "training.participation=all"]
        assert main(["show", str(SPECS / "ogl-ring.yaml"), *(x for c in changes for x in ("--set", c))]) == 0
        out = " ".join(written(capsys).out.split())
        assert "trusted none" in out
        assert "untrusted 1 0.05 each worker ×2" in out
        assert "19 of every group, with noise, one per interval of 10 rounds" in out
        assert "of an interval to √10 times that" in out
        assert "every worker, in every group it is in, every interval" in out
        assert "note: 199 rounds are no multiple of merge_every" in out

    def test_groups_of_which_some_trust_their_master(self, capsys):
        ring = str(SPECS / "ogl-ring.yaml")
        assert main(["show", ring, "--set", "trust.trusted_aggregators=[1, 3]"]) == 0
        out = " ".join(written(capsys).out.split())
        assert "trusted master:1, master:3" in out
        assert "untrusted 0.7 0.05 each worker ×2" in out
        assert " trusted 0.7 0.05 master ×2" in out
        many = ["--set", "topology.groups=50", "--set", "trust.trusted_aggregators=0.24"]
        assert main(["show", ring, *many]) == 0
        assert re.search(r"trusted (master:\d+, ){8}4 more", " ".join(written(capsys).out.split()))

    def test_many_groups_are_cut_short(self, capsys):
        changes = ["topology.groups=50", "protocol=ms-fedavg", "training.merge_every=1"]
        assert main(["show", str(SPECS / "ogl-ring.yaml"), *(x for c in changes for x in ("--set", c))]) == 0
        out = written(capsys).out
        assert re.search(r"^… +10 more", out, re.MULTILINE)
        assert "199 of every group, without noise" in out

    def test_notes_are_said(self, capsys):
        assert main(["show", "quickstart", "--set", "protocol=hfl"]) == 0
        assert "hfl adds no noise" in written(capsys).out

    def test_a_pilot_is_marked_as_not_private(self, capsys, monkeypatch):
        found = types.SimpleNamespace(quantiles={0.5: 1.25}, rounds=3, messages=600, what="messages")
        monkeypatch.setitem(
            sys.modules, "sfumato.simulation.pilot", types.SimpleNamespace(pilot=lambda spec: found)
        )
        assert main(["show", "quickstart", "--pilot"]) == 0
        out = written(capsys).out
        assert "NOT ACCOUNTED" in out
        assert "Do not run --pilot on private data" in out
        assert re.search(r"0\.5 +1\.25", out)


class TestInit:
    def test_it_writes_a_spec_that_loads(self, here, capsys):
        assert main(["init"]) == 0
        assert "sfumato run quickstart.yaml" in written(capsys).out
        assert load_spec("quickstart.yaml") == load_spec("quickstart")
        assert Path("quickstart.yaml").read_text().startswith("# The main job")

    @pytest.mark.parametrize(
        ("name", "base"), [("three-tier", "three-tier"), ("my-study", "quickstart"), ("a.yaml", "quickstart")]
    )
    def test_names(self, name, base, here):
        assert main(["init", name]) == 0
        stem = name.removesuffix(".yaml")
        assert load_spec(f"{stem}.yaml") == load_spec(base, [f"name={stem}"])

    def test_it_overwrites_nothing(self, here, capsys):
        Path("quickstart.yaml").write_text("precious")
        assert "exists already" in refused(capsys, "init")
        assert Path("quickstart.yaml").read_text() == "precious"

    @pytest.mark.parametrize("name", ["a/b", "", "a b", "it's"])
    def test_a_name_is_a_name(self, name, here, capsys):
        assert refused(capsys, "init", name).startswith("NAME: ")
        assert list(here.iterdir()) == []


def keep(folder, spec, rounds):
    """A run folder as `sfumato.simulation.run` leaves it, some rounds in."""
    rows = pd.DataFrame({column: [0.0] * rounds for column in METRIC_COLUMNS})
    rows["round"] = range(1, rounds + 1)
    rows["accuracy"] = [0.5 + 0.01 * spec.seed] * rounds
    rows["epsilon:cloud"] = [1.5] * rounds
    rows[f"epsilon:edge:{spec.seed % 2 + 1}"] = [float("inf")] * rounds  # the worst edge depends on the seed
    frozen = FrozenSpec.of(spec, {}, {})
    privacy = {"spec": spec.name, "delta": 1e-5, "guarantees": [], "claims": [], "notes": []}
    files = {
        "spec.yaml": write_spec(folder, frozen.text),
        "metrics.parquet": write_metrics(folder, [rows], frozen.hashes),
        "privacy.json": write_privacy(folder, privacy, frozen.hashes),
        "ledger.json": write_ledger(folder, {}, frozen.hashes),
    }
    write_manifest(folder, Manifest(frozen.fingerprint, False, files))


@pytest.fixture
def engine(monkeypatch):
    """In place of training: writes what a run leaves, and remembers the calls."""
    fake = types.SimpleNamespace(calls=[], stop_after=None)

    def play(
        spec,
        *,
        out,
        ranks,
        device="auto",
        resume=False,
        force=False,
        record_views=(),
        track=(),
        on_step=print,
    ):
        on_step("computing ε")
        fake.calls.append((spec, out, device, resume))
        for number in range(1, spec.training.rounds + 1):
            keep(out, spec, number)
            metrics = {"accuracy": 0.5, "epsilon:cloud": 1.5}
            yield types.SimpleNamespace(round=number, rounds=spec.training.rounds, metrics=metrics)
            if number == fake.stop_after:
                raise KeyboardInterrupt

    fake.run_rounds = play
    monkeypatch.setitem(sys.modules, "sfumato.simulation.run", fake)
    return fake


class TestRun:
    def test_it_plays_into_runs_name_and_says_what_came_out(self, here, engine, capsys):
        assert main(["run", "quickstart", "--set", "training.rounds=3", "--device", "cpu"]) == 0
        captured = written(capsys)
        assert captured.err == ""  # no progress into pipes
        assert "quickstart: 3 rounds, final accuracy 50.0 %" in captured.out
        assert "ε cloud 1.5, ε edge:1 ∞ (δ = 1e-5)" in captured.out
        assert "sfumato report runs/quickstart" in captured.out
        assert engine.calls == [
            (load_spec("quickstart", ["training.rounds=3"]), Path("runs/quickstart"), "cpu", False)
        ]

    def test_quiet_prints_nothing(self, here, engine, capsys):
        assert main(["run", "quickstart", "--quiet", "--out", "x"]) == 0
        captured = written(capsys)
        assert (captured.out, captured.err) == ("", "")

    def test_on_a_terminal_progress_goes_to_stderr(self, here, engine, capsys, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setattr("sfumato.cli.run._print_summary", lambda *_: None)
        assert main(["run", "quickstart"]) == 0
        captured = written(capsys)
        assert captured.out == "next: sfumato verify runs/quickstart; sfumato statement runs/quickstart\n"
        shown = re.sub(r"\x1b\[[0-9;]*m", "", captured.err)
        assert "quickstart, seed 0" in shown
        assert "15/15 accuracy 50.0 % ε cloud 1.5" in shown

    def test_a_folder_that_holds_a_run_is_left_alone(self, here, engine, capsys):
        assert main(["run", "quickstart"]) == 0
        before = {path: path.read_bytes() for path in Path("runs/quickstart").iterdir()}
        capsys.readouterr()
        assert refused(capsys, "run", "quickstart").startswith(
            "--out: got 'runs/quickstart'; holds a run already"
        )
        assert "leave --seeds out" in refused(capsys, "run", "quickstart", "--resume", "--seeds", "2")
        assert {path: path.read_bytes() for path in Path("runs/quickstart").iterdir()} == before
        assert len(engine.calls) == 1
        assert main(["run", "quickstart", "--resume"]) == 0
        assert engine.calls[1][3] is True
        Path("file").write_text("x")
        capsys.readouterr()
        assert "is a file" in refused(capsys, "run", "quickstart", "--out", "file")

    def test_seeds_run_side_by_side_and_give_an_interval(self, here, engine, capsys):
        assert (
            main(["run", "quickstart", "--seeds", "3", "--set", "seed=4", "--set", "training.rounds=2"]) == 0
        )
        assert [(spec.seed, str(out)) for spec, out, *_ in engine.calls] == [
            (seed, f"runs/quickstart/seed-{seed}") for seed in (4, 5, 6)
        ]
        # 0.54, 0.55, 0.56: standard error 0.01/√3, t(2) = 4.303
        assert "2 rounds, final accuracy 55.0 % ± 2.5 (95 %), mean of 3 seeds" in written(capsys).out
        assert "holds a run of several seeds" in refused(capsys, "run", "quickstart", "--resume")
        assert main(["run", "quickstart", "--seeds", "3", "--set", "seed=4", "--resume"]) == 0

    def test_an_interrupt_says_how_to_go_on(self, here, engine, capsys):
        engine.stop_after = 2
        arguments = [
            "run",
            "quickstart",
            "--set",
            "privacy.noise={multiplier: 2}",
            "--device",
            "cpu",
            "--seeds",
            "2",
        ]
        assert main(arguments) == 130
        captured = written(capsys)
        assert captured.out == ""
        assert (
            "interrupted; continue with: sfumato run quickstart --out runs/quickstart "
            "--set 'privacy.noise={multiplier: 2}' --seeds 2 --device cpu --resume\n"
        ) in captured.err
        assert len(load_run(Path("runs/quickstart/seed-0")).metrics) == 2

    def test_a_bad_spec_leaves_nothing_behind(self, here, engine, capsys):
        refused(capsys, "run", "quickstart", "--set", "training.rounds=0")
        assert list(here.iterdir()) == []


class TestReports:
    @pytest.fixture
    def runs(self, here):
        for name in ("one", "two"):
            keep(Path(name), load_spec("quickstart", [f"name={name}"]), 3)

    @pytest.mark.parametrize(
        ("arguments", "folders", "out"),
        [
            (["one"], ["one"], "one/report.html"),
            (["one", "two"], ["one", "two"], "report.html"),
            (["one", "--out", "x.html"], ["one"], "x.html"),
        ],
    )
    def test_report_says_where_it_wrote(self, arguments, folders, out, runs, capsys, monkeypatch):
        calls = []

        def compared(runs):
            page = types.SimpleNamespace(notices=["the ε are of two units"])
            page.report = lambda out: calls.append((runs, out)) or out
            return page

        monkeypatch.setattr("sfumato.report.compare", compared)
        assert main(["report", *arguments]) == 0
        assert written(capsys).out == f"note: the ε are of two units\n{out}\n"
        assert calls == [([Path(folder) for folder in folders], Path(out))]

    def test_compare_puts_runs_side_by_side(self, runs, capsys):
        assert main(["compare", "one", "two"]) == 0
        out = written(capsys).out
        assert re.search(r"^one +h2fdp +50\.0 ", out, re.MULTILINE)
        assert re.search(r"^two +h2fdp +50\.0 ", out, re.MULTILINE)

    def test_compare_keeps_names_whatever_the_width(self, runs, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "40")
        assert main(["compare", "one", "two"]) == 0
        out = capsys.readouterr().out
        assert re.search(r"^one +h2fdp +50\.0 .*\d$", out, re.MULTILINE)
        assert re.search(r"^each: \d+ rounds?, 1 seed, δ = 1e-5$", out, re.MULTILINE)

    def test_what_is_no_run_is_refused(self, runs, capsys):
        assert "no such run folder" in refused(capsys, "report", "three")
        assert "two or more" in refused(capsys, "compare", "one")
