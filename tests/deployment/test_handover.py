"""`deploy --parties` and `deploy check`: folders, and what is refused."""

from __future__ import annotations

import base64
import datetime
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from handed_over import checked, free_addresses, put_run, written
from rehearsals import STAR, TREE

from sfumato.cli import main
from sfumato.deployment import hop_keys, hops_check, tls_hops
from sfumato.deployment.duties import duties, whose_keys_were_made
from sfumato.deployment.hop_keys import make_keys
from sfumato.deployment.hops_file import read_hops
from sfumato.deployment.invitation import read_terms, start_party
from sfumato.learning.server_optimizer import ServerState
from sfumato.protocols.tree.state import DeployedState, TreeState

EDGES = {"cloud": {"address": "cloud.example:1"}, "edge-0": {"address": "graz.example:2"}}
EDGES["edge-1"] = {"address": "linz.example:3", "listens": "0.0.0.0:4"}


@pytest.fixture(name="star")
def fixture_star(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folders of a star, whose consents were proposed and agreed to."""
    monkeypatch.setattr(hops_check, "PATIENCE_S", 0.0)
    assert main(written(tmp_path, STAR, free_addresses("cloud"))) == 0
    return tmp_path / "out"


def test_a_folder_a_party_with_nothing_that_others_could_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(written(tmp_path, TREE, EDGES)) == 0
    assert "secret keys were made here of: device-0, device-1" in capsys.readouterr().out
    folders = sorted((tmp_path / "out").iterdir())
    assert [one.name for one in folders] == [
        *("cloud", "device-0", "device-1", "device-2", "device-3", "edge-0", "edge-1")
    ]
    for folder in folders:
        for path in (folder, *folder.iterdir()):
            assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO), path
        said, terms = read_terms(folder)
        assert terms.keys[said.number].hex() == yaml.safe_load((folder / "public.yaml").read_text())["key"]
        sheet = (folder / "sheet.txt").read_text()
        assert all(sentence in sheet for sentence in duties(terms, said.number))
        assert f"sfumato party {folder.name} --folder ." in (folder / "party.service").read_text()
        assert f"Its own key, in its public.yaml, begins {terms.keys[said.number].hex()[:32]}." in sheet
        assert (folder / "data.npz").exists() == folder.name.startswith("device")
        assert not (folder / "consent.yaml").exists()
    assert "It listens at 0.0.0.0:4, over TLS 1.3, for device:2, device:3" in sheet
    first = (folders[1] / "sheet.txt").read_text()
    assert "clips its update to 1" in first
    assert f"edge:0's key begins {terms.keys[5].hex()[:32]}: ask its owner" in first
    assert "It reads the 12 rows of data.npz, unless its owner names another file in consent.yaml." in first


def test_devices_know_the_address_of_their_edge_only(tmp_path: Path) -> None:
    """What passes between an edge and its devices, raw messages among it, does not pass the cloud."""
    assert main(written(tmp_path, TREE, EDGES)) == 0
    out = tmp_path / "out"
    for device, address in enumerate(["graz.example:2"] * 2 + ["linz.example:3"] * 2):
        hops = read_hops(out / f"device-{device}")
        assert ([parent.address for parent in hops.parents], hops.children) == ([address], ())
    cloud, edge = read_hops(out / "cloud"), read_hops(out / "edge-1")
    assert [child.number for child in cloud.children] == [5, 6]
    assert [child.number for child in edge.children] == [2, 3]
    assert [(parent.number, parent.address) for parent in edge.parents] == [(4, "cloud.example:1")]
    assert edge.listens == "0.0.0.0:4"


def test_secrets_of_who_made_its_own_keys_are_not_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "keys", str(tmp_path / "ann" / "device-1")]) == 0
    assert main(["deploy", "keys", str(tmp_path / "bob" / "device-0")]) == 0
    public = tmp_path / "ann" / "device-1" / "public.yaml"
    parties = EDGES | {"device-1": {"public": "ann/device-1/public.yaml", "data": "/srv/ann/rows.npz"}}
    parties |= {"device-0": {"public": "bob/device-0/public.yaml"}}
    assert main(written(tmp_path, TREE, parties)) == 0
    assert "here of: device-2, device-3" in capsys.readouterr().out
    folder = tmp_path / "out" / "device-1"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("hops.yaml", "party.service", "sheet.txt", "spec.yaml", "terms.yaml")
    ]
    assert stat.S_IMODE((tmp_path / "out" / "device-0").stat().st_mode) == 0o700  # its rows came first
    said_of_rows = (folder / "sheet.txt").read_text()
    assert "It reads the 12 rows of /srv/ann/rows.npz" in said_of_rows
    assert "Copy spec.yaml, terms.yaml, hops.yaml and sheet.txt, and nothing else, into the" in said_of_rows
    simulated = (tmp_path / "out" / "device-0" / "sheet.txt").read_text()
    assert "Copy spec.yaml, terms.yaml, hops.yaml, data.npz and sheet.txt, and nothing else" in simulated
    of_cloud = (tmp_path / "out" / "cloud" / "sheet.txt").read_text()
    assert "1. Put this folder where only you can write" in of_cloud
    made = "device:2, device:3, cloud, edge:0, edge:1"
    assert f"Whoever deployed made the secret keys of {made}, and can act as them.\n\n" in said_of_rows
    said, terms = read_terms(folder)
    assert said.data == "/srv/ann/rows.npz"
    assert terms.keys[1].hex() == yaml.safe_load(public.read_text())["key"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"device-9": {}}, "must be a party of the spec: device-0, …, device-3, cloud, edge-0, edge-1"),
        ({"edge-1": {}}, "parties.edge-1.address: must be given"),
        ({"edge-1": {"address": "http://here:1"}}, "must be HOST:PORT"),
        ({"edge-1": {"address": "here:1", "data": "/x"}}, "only devices have rows"),
        ({"device-0": {"address": "here:1"}}, "must be left out: a device dials"),
        ({"device-0": {"tls": False}}, "tls"),
        ({"device-0": {"public": "nowhere.yaml"}}, "nowhere.yaml"),
        ({"device-0": {"public": "spec.yaml"}}, "spec.yaml"),
        (
            {"device-0": {"public": "same.yaml"}, "device-1": {"public": "same.yaml"}},
            "device-1.public: must be of another party than device-0: both have the same key",
        ),
    ],
)
def test_parties_that_do_not_fit_are_refused(
    changed: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_keys(tmp_path / "same")
    shutil.copy(tmp_path / "same" / "public.yaml", tmp_path / "same.yaml")
    assert main(written(tmp_path, TREE, EDGES | changed)) == 2
    told = capsys.readouterr().err
    assert said in told
    assert not (tmp_path / "out").exists()  # all that is sent is read first
    assert len(told.splitlines()) == 1


FIXED = STAR["training"] | {"participation": {"kind": "fixed", "count": 2}}
GROUPS = STAR | {
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1, 2], [2, 3, 4]]},
    "training": STAR["training"] | {"local_steps": 1, "merge_every": 2},
}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (STAR | {"training": FIXED}, "training.participation: got 'fixed'; must be all or poisson"),
        (GROUPS | {"protocol": "dp-ogl+"}, "protocol: got 'dp-ogl+'; must noise all that is sent"),
    ],
    ids=["a fixed number of participants", "groups"],
)
def test_what_is_not_there_yet_is_refused_before_anything_is_written(
    document: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = written(tmp_path, STAR, free_addresses("cloud"))
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(document))
    assert main(command) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert said in told
    assert not (tmp_path / "out").exists()


def test_a_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = written(tmp_path, TREE, EDGES)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    for words, said in [
        (command, "is there already; every run has folders of its own"),
        (command[:4], "--out: must be given with --parties"),
        ([*command, "--local"], "must be given, or --parties, and not both"),
        (["deploy", "check"], "DIR: must be given: the folder of a party"),
        (["deploy", "keys"], "DIR: must be given: the folder of a party"),
        (["deploy", "check", str(tmp_path / "out")], "holds no party: there is no hops.yaml"),
        (["deploy", "quickstart", "here", "--local"], "is for `deploy check` and `deploy keys` only"),
        ([*command, "--set", "privacy.clip=null"], "privacy.clip"),
    ]:
        assert main(words) == 2, words
        assert said in capsys.readouterr().err


def key_of(folder: Path) -> str:
    """The public key of a party, in hexadecimal digits."""
    return str(yaml.safe_load((folder / "public.yaml").read_text())["key"])


def test_a_check_proposes_a_consent_and_then_dials_every_hop(
    star: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proposed = (
        f"device-0/consent.yaml was proposed, for the rows of {star / 'device-0' / 'data.npz'}: read it"
    )
    assert proposed in checked(star, capsys)
    assert main(["deploy", "check", str(star)]) == 0
    said = capsys.readouterr().out
    assert "device-2: cloud at 127.0.0.1" in said
    assert "answers, with its registered key, and the same terms" in said
    assert f"device-2: Its own key, in its public.yaml, begins {key_of(star / 'device-2')[:32]}." in said
    assert f"device-2: cloud's key begins {key_of(star / 'cloud')[:32]}" in said
    assert "cloud: all who are below it have dialed" in said
    assert "device-1: cloud: learns of device:1 at most ε" in said
    assert "nobody answers" in checked(star / "device-0", capsys)
    assert "has not been dialed by device:0, device:1, device:2" in checked(star / "cloud", capsys)


def test_a_check_refuses_what_a_start_would(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = star / "device-0"
    checked(star, capsys)
    os.rename(folder / "key", folder / "own-key")
    shutil.copy(star / "device-1" / "key", folder / "key")
    assert "its key is not the one that the terms name" in checked(folder, capsys)
    os.remove(folder / "key")
    assert "key: is missing: a party takes part with the key that is registered" in checked(folder, capsys)
    assert not (folder / "key").exists()
    os.rename(folder / "own-key", folder / "key")
    (folder / "hops.yaml").chmod(0o620)
    assert "hops.yaml: may be changed by others" in checked(folder, capsys)
    (folder / "hops.yaml").chmod(0o600)
    consent = yaml.safe_load((folder / "consent.yaml").read_text())
    consent["epsilon"]["device"]["cloud"] = 0.01
    (folder / "consent.yaml").write_text(yaml.safe_dump(consent))
    assert main(["deploy", "check", str(folder), "--confirm"]) == 1
    assert "its consent allows 0.01" in capsys.readouterr().err
    os.remove(folder / "consent.yaml")
    np.savez(folder / "rows.npz", features=np.zeros((5, 3)), labels=np.zeros(5, int), outputs=[2])
    (folder / "rows.npz").chmod(0o600)
    terms = yaml.safe_load((folder / "terms.yaml").read_text())
    (folder / "terms.yaml").write_text(yaml.safe_dump(terms | {"data": "rows.npz"}))
    checked(folder, capsys)
    assert "holds 5 examples; the spec was accounted for with 12" in checked(folder, capsys)
    np.savez(folder / "rows.npz", features=np.zeros((5, 3)), labels=np.full(5, 2), outputs=[2])
    assert "labels must be whole numbers from 0 to 1" in checked(folder, capsys)


def test_the_cloud_does_not_start_with_the_hops_of_another(
    star: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hops = yaml.safe_load((star / "cloud" / "hops.yaml").read_text())
    (star / "cloud" / "hops.yaml").write_text(yaml.safe_dump(hops | {"children": hops["children"][:2]}))
    assert main(["party", "cloud", "--folder", str(star)]) == 2
    assert "hops.yaml: children: got 2; must be those of" in capsys.readouterr().err


def test_a_run_of_other_terms_does_not_pass_for_this_one(
    star: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cloud's folder got new terms, and an old run is still there, or was put back."""
    monkeypatch.setattr(tls_hops, "PATIENCE_S", 0.0)
    cloud, run = star / "cloud", star / "cloud" / "run"
    run.mkdir()
    assert "has not been dialed by" in checked(cloud, capsys)  # an empty folder is no run
    start, said = (0, torch.zeros(4), ServerState(0, ())), "cloud/run: is the run of other terms"
    for other in (DeployedState(*start, session="00" * 32), TreeState(*start)):
        put_run(run, other)
        assert said in checked(cloud, capsys)
        assert main(["party", "cloud", "--folder", str(star)]) == 1
        assert said in capsys.readouterr().err
    (run / "checkpoint.pt").unlink()
    (run / "spec.yaml").touch()
    assert said in checked(cloud, capsys)
    _, terms = read_terms(cloud)
    own = DeployedState(*start, session=terms.session.hex(), heads=terms.digest_of_keys(terms.heads))
    put_run(run, own)
    assert "has not been dialed by" in checked(cloud, capsys)


def changed_hops(folder: Path, entry: Callable[[dict[str, Any]], dict[str, Any]], **more: str) -> None:
    """Put other values into one entry of a party's hops."""
    hops = yaml.safe_load((folder / "hops.yaml").read_text())
    entry(hops).update(more)
    (folder / "hops.yaml").write_text(yaml.safe_dump(hops))


@pytest.mark.parametrize("bound", [True, False], ids=["bound by a foreign key", "with the true binding"])
def test_nobody_stands_between_two_parties(
    bound: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever writes or carries hops.yaml puts certificates of his own there, at both ends of a hop
    over which raw messages go: neither end starts, nor is it told that all is well."""
    addresses = free_addresses("cloud", "edge-0", "edge-1")
    assert main(written(tmp_path, TREE, addresses)) == 0
    out, evil = tmp_path / "out", make_keys(tmp_path / "evil")
    (device, edge), own = (out / "device-0", out / "edge-0"), {"certificate": evil.certificate}
    own |= {"binding": evil.binding} if bound else {}
    checked(device, capsys)  # which proposes a consent that pins the edge's key
    changed_hops(device, lambda hops: hops["parents"][0], address=addresses["edge-1"]["address"], **own)
    changed_hops(edge, lambda hops: hops["children"][0], **own)
    for folder, place in ((device, "parents[0].binding"), (edge, "children[0].binding")):
        said = f"{folder}/hops.yaml: {place}: got '"
        assert said in checked(folder, capsys)
        assert main(["party", folder.name, "--folder", str(out)]) == 2
        assert said in capsys.readouterr().err


def bound(folder: Path) -> dict[str, str]:
    """What others have to know of a party's certificate."""
    said = yaml.safe_load((folder / "public.yaml").read_text())
    return {key: said[key] for key in ("certificate", "binding")}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("device-0", "does not take the certificate of this party"),
        ("cloud", "shows a certificate that is not the one registered for it"),
    ],
)
def test_a_key_of_connections_is_revoked(
    name: str, said: str, star: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its owner makes another one: nobody takes it before it is in the hops of the neighbours."""
    checked(star, capsys)
    (star / name / "hop-key.pem").unlink()
    (star / name / "hop-certificate.pem").unlink()
    assert main(["deploy", "keys", str(star / name)]) == 0
    assert f"device-0: cloud at 127.0.0.1:{port_of(star)}: {said}: " in checked(star, capsys)
    changed_hops(star / "cloud", lambda hops: hops["children"][0], **bound(star / "device-0"))
    for number in range(3):
        changed_hops(star / f"device-{number}", lambda hops: hops["parents"][0], **bound(star / "cloud"))
    assert main(["deploy", "check", str(star)]) == 0


def port_of(star: Path) -> str:
    """Where the cloud of a star listens."""
    return (read_hops(star / "cloud").listens or "").rpartition(":")[2]


def test_an_expired_certificate_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hops_check, "PATIENCE_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(hop_keys, "_AFTER", datetime.timedelta(hours=-1))
        assert main(written(tmp_path, STAR, free_addresses("cloud"))) == 0
    star = tmp_path / "out"
    checked(star, capsys)  # which proposes the consents
    why = "its certificate has expired, or a clock is wrong: certificate has expired"
    said = f"device-0: cloud at 127.0.0.1:{port_of(star)}: {why} (the first of 4 problems)"
    assert checked(star, capsys) == f"sfumato: {said}"


def test_a_key_is_bound_to_its_certificate_when_it_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever carries public.yaml can put no other certificate there."""
    make_keys(tmp_path / "ann")
    sent = tmp_path / "ann" / "public.yaml"
    said, evil = yaml.safe_load(sent.read_text()), make_keys(tmp_path / "evil")
    sent.write_text(yaml.safe_dump(said | {"certificate": evil.certificate}))
    assert main(written(tmp_path, TREE, EDGES | {"device-0": {"public": "ann/public.yaml"}})) == 2
    assert "public.yaml: binding" in capsys.readouterr().err


def test_whoever_deploys_does_not_choose_the_rows(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After its owner has read a consent, no other file is read, whatever terms.yaml says."""
    folder = star / "device-0"
    checked(folder, capsys)
    assert yaml.safe_load((folder / "consent.yaml").read_text())["data"] == "data.npz"
    shutil.copy(star / "device-1" / "data.npz", folder / "others.npz")
    terms = yaml.safe_load((folder / "terms.yaml").read_text())
    (folder / "terms.yaml").write_text(yaml.safe_dump(terms | {"data": "others.npz"}))
    with closing(start_party(folder)) as started:
        assert started.words[-1] == f"device:0 reads the 12 rows of {folder / 'data.npz'}."


def test_a_link_is_not_followed_to_rows_that_nobody_named(
    star: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = star / "device-0"
    checked(folder, capsys)
    os.rename(folder / "data.npz", star / "others.npz")
    os.symlink(star / "others.npz", folder / "data.npz")
    said = f"data.npz: leads to {star / 'others.npz'}; name that path at data in consent.yaml"
    assert said in checked(folder, capsys)
    os.remove(folder / "consent.yaml")
    assert said in checked(folder, capsys)
    assert not (folder / "consent.yaml").exists()


NOT_AGREED = "device-0/consent.yaml: was not agreed to here: "


def edited(folder: Path, **changes: Any) -> dict[str, Any]:
    """Change the consent of a device; what it says then."""
    consent: dict[str, Any] = yaml.safe_load((folder / "consent.yaml").read_text()) | changes
    (folder / "consent.yaml").write_text(yaml.safe_dump(consent))
    return consent


def refusal_of_start(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a party refuses to start with."""
    capsys.readouterr()
    assert main(["party", folder.name, "--folder", str(folder.parent)]) == 1
    return capsys.readouterr().err


def test_a_consent_that_came_with_a_folder_is_not_used(
    star: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody consents for the owner: not who writes the folder, nor who changes it for another run."""
    checked(star, capsys)
    came = star.with_name("came")
    shutil.copytree(star, came)
    assert NOT_AGREED in checked(came / "device-0", capsys)
    assert NOT_AGREED in refusal_of_start(came / "device-0", capsys)
    terms = yaml.safe_load((star / "device-0" / "terms.yaml").read_text())
    (star / "device-0" / "terms.yaml").write_text(yaml.safe_dump(terms | {"label": "another run"}))
    assert NOT_AGREED in checked(star / "device-0", capsys)
    (star / "device-0" / "terms.yaml").write_text(yaml.safe_dump(terms))
    assert main(["deploy", "check", str(star)]) == 0
    assert NOT_AGREED in checked(came / "device-0", capsys)  # what counts in one folder counts in no other


def test_a_consent_that_replaces_a_proposed_one_is_not_used(
    star: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder is unpacked again after the first check, with a consent to anything."""
    folder = star / "device-0"
    checked(folder, capsys)
    anything = dict.fromkeys(("cloud", "public", "peer", "other-device"), "any")
    edited(folder, epsilon={"device": anything, "record": anything}, total={"epsilon": 1e9, "delta": 0.9})
    assert NOT_AGREED in checked(folder, capsys)
    assert NOT_AGREED in refusal_of_start(folder, capsys)


def test_a_consent_that_refuses_is_valid_nowhere_else(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, other = star / "device-0", star / "device-1"
    checked(star, capsys)
    edited(folder, purposes=["something else"])
    assert main(["deploy", "check", str(folder), "--confirm"]) == 1
    assert "consents to something else" in capsys.readouterr().err
    shutil.copy(folder / "consent.yaml", other / "consent.yaml")
    assert "was not agreed to here" in checked(other, capsys)


def test_an_owner_confirms_an_edited_consent(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one act, which shows what differs from the proposed one; then it counts for other terms too."""
    folder = star / "device-0"
    checked(folder, capsys)
    edited(folder, purposes=["a study", "b\u202e"])
    capsys.readouterr()
    assert main(["deploy", "check", str(folder), "--confirm"]) == 1
    said = capsys.readouterr()
    differs = r"its consent says ['a study', 'b\u202e'] at purposes; proposed would be ['a study']."
    (told,) = [line for line in said.out.splitlines() if "proposed would be" in line]
    assert told == f"device-0: {differs}"
    assert f"{folder / 'consent.yaml'} is confirmed" in said.out
    assert "nobody answers" in said.err
    terms = yaml.safe_load((folder / "terms.yaml").read_text())
    (folder / "terms.yaml").write_text(yaml.safe_dump(terms | {"label": "another run"}))
    assert "nobody answers" in checked(folder, capsys)
    edited(folder, delta=1e-6)
    assert NOT_AGREED in checked(folder, capsys)


def test_only_one_consent_is_confirmed_at_a_time(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked(star, capsys)
    for place in (star, star / "cloud"):
        assert main(["deploy", "check", str(place), "--confirm"]) == 2
        assert "must be the folder of one device" in capsys.readouterr().err
    assert main(["deploy", "keys", str(star / "device-0"), "--confirm"]) == 2


def test_the_rows_may_be_behind_a_link_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that is a link to another disk: what is proposed is the file that it leads to."""
    monkeypatch.setattr(hops_check, "PATIENCE_S", 0.0)
    (tmp_path / "disk").mkdir()
    os.symlink(tmp_path / "disk", tmp_path / "home")
    rows, named = tmp_path / "disk" / "rows.npz", tmp_path / "home" / "rows.npz"
    entries = free_addresses("cloud") | {"device-0": {"data": str(named)}}
    assert main(written(tmp_path, STAR, entries)) == 0
    shutil.copy(tmp_path / "out" / "device-1" / "data.npz", rows)
    rows.chmod(0o600)
    folder = tmp_path / "out" / "device-0"
    assert f"was proposed, for the rows of {rows}: read it" in checked(folder, capsys)
    assert yaml.safe_load((folder / "consent.yaml").read_text())["data"] == str(rows)
    assert "nobody answers" in checked(folder, capsys)
    edited(folder, data=str(named))
    assert f"leads to {rows}; name that path at data" in checked(folder, capsys)


def test_owners_are_told_whose_keys_they_rely_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under masks whoever deploys can be all others."""
    monkeypatch.setattr(hops_check, "PATIENCE_S", 0.0)
    make_keys(tmp_path / "device-0")
    masked = STAR | {"transport": {"devices_to_cloud": "secure-aggregation"}}
    sent = {"device-0": {"public": "device-0/public.yaml"}}
    assert main(written(tmp_path, masked, free_addresses("cloud") | sent)) == 0
    told = "made the secret keys of device:1, device:2, cloud, and can act as them.\nAmong them are"
    hides = f"{told} 2 others below cloud: if these side with it, the sum below cloud hides no message from"
    out = tmp_path / "out"
    assert hides in (out / "device-0" / "sheet.txt").read_text()
    assert "Among them are 1 others" not in (out / "device-1" / "sheet.txt").read_text()
    capsys.readouterr()
    assert main(["deploy", "check", str(out)]) == 1
    said = capsys.readouterr().out
    assert "device-1: Whoever deployed made the secret keys of device:1, device:2, cloud" in said
    assert main(["deploy", "check", str(out / "device-1")]) == 1
    relied = "by: device:1 itself, other devices (1 of 2 with keys that whoever deployed made)."
    assert relied in capsys.readouterr().out
    _, terms = read_terms(out / "device-1")
    assert said.count(f"All owners have the same session: {terms.session.hex()[:32]}.") == 3


def test_whose_keys_were_made_is_part_of_the_terms(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What one owner is told all are told, and what is left out is not said to be none."""
    file = star / "device-0" / "terms.yaml"
    said = yaml.safe_load(file.read_text())
    _, terms = read_terms(star / "device-0")
    others = []
    for made in ([], [0], None):
        file.write_text(yaml.safe_dump(said | {"made_keys": made}))
        others.append(read_terms(star / "device-0")[1])
    assert len({one.session for one in (terms, *others)}) == 4
    assert whose_keys_were_made(others[-1], 0) == ("Whose secret keys whoever deployed made is not said.",)
    file.write_text(yaml.safe_dump(said | {"made_keys": [999]}))
    assert main(["deploy", "check", str(star / "device-0")]) == 1
    assert "made_keys" in capsys.readouterr().err


def test_a_purpose_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = written(tmp_path, STAR, free_addresses("cloud"))
    parties = yaml.safe_load((tmp_path / "parties.yaml").read_text())
    (tmp_path / "parties.yaml").write_text(yaml.safe_dump(parties | {"purpose": "a \u202e study"}))
    assert main(command) == 2
    assert r"purpose: got 'a \u202e study'; must be printable" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("true", "false"),
    [(b"\xa0\3\2\1\2", b"\xa0\3\2\1\11"), (b"sfumato ", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe")],
    ids=["an unknown version", "a subject that is no text"],
)
def test_a_certificate_that_cannot_be_read_is_none(
    true: bytes, false: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = make_keys(tmp_path / "ann").model_dump()
    unknown = base64.b64decode(said["certificate"]).replace(true, false)
    said["certificate"] = base64.b64encode(unknown).decode()
    (tmp_path / "ann" / "public.yaml").write_text(yaml.safe_dump(said))
    assert main(written(tmp_path, TREE, EDGES | {"device-0": {"public": "ann/public.yaml"}})) == 2
    assert "public.yaml: certificate" in capsys.readouterr().err


def test_labels_are_whole_numbers(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = star / "device-0"
    checked(folder, capsys)
    np.savez(folder / "data.npz", features=np.zeros((12, 3)), labels=np.full(12, 0.9), outputs=[2])
    assert "labels must be whole numbers; they are float64" in checked(folder, capsys)
    with (folder / "data.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    assert "data.npz: cannot be read" in checked(folder, capsys)
    (folder / "data.npz").write_bytes(b"")
    assert "data.npz: cannot be read" in checked(folder, capsys)
    np.savez(folder / "data.npz", features=np.zeros(()), labels=np.zeros(12, int), outputs=[2])
    assert "data.npz: must have rows of features, and one label a row" in checked(folder, capsys)


def test_rows_are_numbers_that_the_model_takes(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = star / "device-0"
    checked(folder, capsys)
    with np.load(folder / "data.npz") as archive:
        good = {name: archive[name] for name in archive.files}
    features = good["features"]
    for name, more, said in (
        ("whole numbers", {"features": features.astype(np.int32)}, "nobody answers"),
        ("complex", {"features": features.astype(complex)}, "features must be numbers; they are complex128"),
        ("text", {"features": np.full(features.shape, "x")}, "features must be numbers; they are <U1"),
        ("text", {"targets": np.full(12, "x")}, "targets must be numbers; they are <U1"),
        ("infinite", {"outputs": np.array([np.inf])}, "data.npz: cannot be read"),
    ):
        np.savez(folder / "data.npz", **(good | more))
        assert said in checked(folder, capsys), name


def test_damaged_rows_are_refused_in_one_line(star: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever zlib and zipfile make of the damage."""
    folder = star / "device-0"
    checked(folder, capsys)
    with np.load(folder / "data.npz") as archive:
        np.savez_compressed(folder / "data.npz", **{name: archive[name] for name in archive.files})
    whole = (folder / "data.npz").read_bytes()
    for place in (whole.index(b"PK\1\2") + 8, len(whole) // 2):  # a flag of zip; compressed bytes
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        (folder / "data.npz").write_bytes(bytes(damaged))
        assert "data.npz: cannot be read" in checked(folder, capsys)
