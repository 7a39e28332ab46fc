"""What a party's folder says to people and to machines that start it: a sheet, a unit, a container file."""

from __future__ import annotations

from sfumato.deployment.duties import duties, taking_part
from sfumato.deployment.hops_file import Hops, address_of
from sfumato.deployment.terms import DeploymentTerms
from sfumato.spec.frozen import versions

_HOME = "sfumato-parties"  # where units look for folders of parties, in the user's home


def sheet(terms: DeploymentTerms, number: int, folder: str, hops: Hops) -> str:
    """The file ``sheet.txt``.

    Args:
        terms: of the run.
        number: of the party.
        folder: the name of its folder.
        hops: its hops.
    """
    said = [taking_part(terms, number), *duties(terms, number), *_whom_it_meets(hops), ""]
    steps = [f"Put this folder where only you can write, such as ~/{_HOME}/{folder}, and go to ~/{_HOME}."]
    if number < terms.cloud:
        steps += [
            f"sfumato deploy check {folder}   proposes consent.yaml, which you read and edit.",
            f"sfumato deploy check {folder}   compares the run with it, and dials {_parent(hops)}.",
        ]
    else:
        steps.append(f"sfumato deploy check {folder}   waits for those who dial, when they check too.")
    last = "plays the run and ends with it." if number == terms.cloud else "answers until you end it."
    steps.append(f"sfumato party {folder} --folder .   {last}")
    said += [f"{index}. {step}" for index, step in enumerate(steps, 1)]
    said += [
        "",
        f"It needs Sfumato {versions()['sfumato']}: parties of other versions are in another session.",
    ]
    return "\n".join(said) + "\n"


def _whom_it_meets(hops: Hops) -> list[str]:
    """The connections of a party, in words."""
    said = []
    if hops.parent is not None:
        said.append(f"It dials {hops.parent.name} at {hops.parent.address}, over TLS 1.3.")
    if hops.children:
        names = ", ".join(child.name for child in hops.children)
        said.append(f"It listens at {hops.listens}, over TLS 1.3, for {names}, and lets in nobody else.")
    return said


def _parent(hops: Hops) -> str:
    """The name of the parent of a device."""
    assert hops.parent is not None  # of a device or an edge
    return hops.parent.name


def systemd_unit(terms: DeploymentTerms, number: int, folder: str) -> str:
    """The file ``party.service``: a unit of the user's; started again after a crash, not after a refusal."""
    return f"""\
# cp party.service ~/.config/systemd/user/sfumato-{folder}.service; systemctl --user start sfumato-{folder}
[Unit]
Description=Sfumato: {terms.name(number)} of {terms.plan.spec.name}
After=network-online.target

[Service]
WorkingDirectory=%h/{_HOME}
ExecStart=/usr/bin/env sfumato party {folder} --folder .
UMask=0077
Restart=on-abnormal
RestartSec=10
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def container_file(folder: str, hops: Hops) -> str:
    """The file ``Containerfile``. Nothing of the party is copied into the image: its folder is mounted."""
    published, exposed = "", ""
    if hops.listens is not None:
        _, port = address_of(hops.listens, "listens")
        published, exposed = f" -p {port}:{port}", f"EXPOSE {port}\n"
    return f"""\
# Beside this file belongs a wheel: pip wheel --no-deps -w . PATH-OF-SFUMATO-{versions()["sfumato"]}. Then:
#   podman build -t sfumato-party -f Containerfile .
#   podman run --userns keep-id --user "$(id -u)"{published} -v ~/{_HOME}:/parties \\
#     -v ~/.local/state/sfumato:/state/sfumato sfumato-party
# To check instead, which also makes the ledger that is proposed: sfumato-party deploy check {folder}
FROM python:3.11-slim
COPY sfumato-*.whl /tmp/
RUN pip install --no-cache-dir /tmp/sfumato-*.whl
ENV XDG_STATE_HOME=/state
WORKDIR /parties
{exposed}ENTRYPOINT ["sfumato"]
CMD ["party", "{folder}", "--folder", "."]
"""
