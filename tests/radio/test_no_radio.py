"""Parties on wires: bytes are counted, energy and time are not, and nothing else changes."""

from pathlib import Path

import pytest
import yaml

import sfumato as sf
from sfumato.cli import main
from sfumato.errors import SpecError
from sfumato.planning import plan
from sfumato.report import compare, write_report
from sfumato.schedule.resolve import resolve

pytestmark = pytest.mark.usefixtures("no_report")

CHANGES = ["training.rounds=2", "topology={edges: 2, devices_per_edge: 3}", "trust.trusted_edges=0"]


def spec_of(*changes: str) -> sf.Spec:
    return sf.load_spec("quickstart", [*CHANGES, *changes])


def test_only_energy_and_time_are_not_counted(tmp_path: Path) -> None:
    wired = sf.run(spec_of("radio=none"), out=tmp_path / "wired").metrics
    wireless = sf.run(spec_of(), out=tmp_path / "wireless").metrics
    assert wired[["energy_j", "delay_s"]].isna().all(axis=None)
    assert (wireless["energy_j"] > 0).all()
    same = [name for name in wired if name not in ("energy_j", "delay_s", "wall_time_s")]
    assert wired[same].equals(wireless[same])
    assert sf.account(spec_of("radio=none")).table().equals(sf.account(spec_of()).table())


def test_columns_of_energy_and_time_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, seed in ((one, 0), (two, 1)):
        sf.run(spec_of("radio=none", f"seed={seed}"), out=folder)
    page = write_report([one], tmp_path / "report.html").read_text("utf-8")
    assert "<dt>Traffic up</dt>" in page
    assert "<dt>Energy</dt>" not in page
    assert "<dt>Time to transmit</dt>" not in page
    assert "against energy" not in page
    assert compare([one, two]).notices == []
    assert main(["compare", str(one), str(two)]) == 0
    assert "energy" not in capsys.readouterr().out
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump({**yaml.safe_load(sf.dump_spec(spec_of())), "radio": "none"}), "utf-8")
    assert main(["show", str(spec)]) == 0
    assert "none: bytes are counted, energy and time are not" in " ".join(capsys.readouterr().out.split())


def test_messages_have_the_size_that_is_asked_for(tmp_path: Path) -> None:
    sizes = []
    for bits in (16, 32):
        spec = spec_of(f"radio={{preset: none, bits_per_parameter: {bits}}}", f"name=b{bits}")
        sizes.append(sf.run(spec, out=tmp_path / str(bits)).metrics["bytes_up"].sum())
    assert sizes[1] == 2 * sizes[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["radio={preset: none, power_dbm: 3}"], "no such key"),
        (["radio=wired"], "must be"),
        (["control={}"], "radio: .* must be a radio with control"),
        (["transport={devices_to_edge: air}", "privacy.noise=none"], "must be a radio with the air"),
    ],
)
def test_what_needs_a_radio(changes: list[str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        resolve(spec_of("radio=none", *changes))


def test_energy_cannot_be_minimised() -> None:
    with pytest.raises(SpecError, match="has no energy to minimise"):
        plan(spec_of("radio=none"), targets={"cloud": 8.0}, minimize="energy")
