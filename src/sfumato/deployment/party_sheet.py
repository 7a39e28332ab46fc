"""The two files that explain how to start a party: a sheet for people, and a unit for systemd."""

from __future__ import annotations

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.duties import duties, taking_part, whose_keys_were_made
from sfumato.deployment.hops_file import Hops
from sfumato.deployment.rows_file import DATA
from sfumato.deployment.terms import KEY_DIGITS
from sfumato.spec.frozen import versions

_HOME = "sfumato-parties"  # where units look for folders of parties, in the user's home


def sheet(
    terms: CommonTerms,
    number: int,
    folder: str,
    hops: Hops,
    *,
    data: str | None = None,
) -> str:
    """The text of ``sheet.txt``: what the party does, sees and says, and how it is started.

    Args:
        terms: of the run.
        number: of the party.
        folder: the name of its folder.
        hops: its hops.
        data: of a device: the file of its rows on its own machine, if they are not in the folder.
    """
    said = [taking_part(terms, number), *duties(terms, number), *_whom_it_meets(terms, number, hops)]
    if number < terms.device_count:
        held = f"{terms.examples[number]:,}"
        whose = f"rows of {held} persons in" if terms.protects_persons else f"{held} rows of"
        read = f"It reads the {whose} {data or DATA}"
        said.append(f"{read}, unless its owner names another file in consent.yaml.")
        said.append("Sfumato's engine trains on them, unless its owner names a loop of its own there.")
    said += [*keys_in_words(terms, number), ""]
    if number in (terms.made_keys or ()):
        steps = [f"Put this folder where only you can write, such as ~/{_HOME}/{folder}"]
    else:
        rows = f", {DATA}" if number < terms.device_count and data is None else ""
        files = f"spec.yaml, terms.yaml, hops.yaml{rows} and sheet.txt, and nothing else"
        steps = [f"Copy {files}, into the folder of your keys, such as ~/{_HOME}/{folder}"]
    steps[0] += f", and go to ~/{_HOME}."
    if number < terms.device_count:
        parents = ", ".join(map(terms.name, terms.parents(number)))
        steps += [
            f"sfumato deploy check {folder}   proposes consent.yaml, which you read.",
            f"sfumato deploy check {folder} --confirm   only if you have edited it.",
            f"sfumato deploy check {folder}   compares the run with it, and dials {parents}.",
        ]
    else:
        steps.append(f"sfumato deploy check {folder}   waits for those who dial, when they check too.")
    last = "plays the run and ends with it." if number in terms.heads else "answers until you end it."
    steps.append(f"sfumato party {folder} --folder .   {last}")
    said += [f"{index}. {step}" for index, step in enumerate(steps, 1)]
    said += [
        "",
        f"It needs Sfumato {versions()['sfumato']}: parties of other versions are in another session.",
    ]
    return "\n".join(said) + "\n"


def _whom_it_meets(terms: CommonTerms, number: int, hops: Hops) -> list[str]:
    """Sentences on the connections of party ``number``."""
    said = []
    for parent in hops.parents:
        said.append(f"It dials {terms.name(parent.number)} at {parent.address}, over TLS 1.3.")
    if hops.children:
        names = ", ".join(terms.name(child.number) for child in hops.children)
        said.append(f"It listens at {hops.listens}, over TLS 1.3, for {names}, and lets in nobody else.")
    return said


def keys_in_words(terms: CommonTerms, number: int) -> list[str]:
    """Sentences for the owner of party ``number`` with the first digits of keys, to be compared.

    They also say which keys the deployer made.
    """
    said = [f"All owners have the same session: {terms.session.hex()[:KEY_DIGITS]}."]
    said.append(f"Its own key, in its public.yaml, begins {terms.keys[number].hex()[:KEY_DIGITS]}.")
    for parent in () if number in terms.heads else terms.parents(number):
        begins = f"{terms.name(parent)}'s key begins {terms.keys[parent].hex()[:KEY_DIGITS]}"
        said.append(f"{begins}: ask its owner by another way whether it does.")
    return [*said, *whose_keys_were_made(terms, number)]


def systemd_unit(terms: CommonTerms, number: int, folder: str) -> str:
    """The text of ``party.service``: a systemd user unit that starts the party again only after a crash.

    ``number``: of the party; ``folder``: the name of its folder.
    """
    return f"""\
# cp party.service ~/.config/systemd/user/sfumato-{folder}.service; systemctl --user start sfumato-{folder}
# loginctl enable-linger: it then runs without a session of yours too.
[Unit]
Description=Sfumato: {terms.name(number)} of {terms.plan.spec.name}

[Service]
WorkingDirectory=%h/{_HOME}
ExecStart=/usr/bin/env sfumato party {folder} --folder .
# Environment=XDG_STATE_HOME=...   if your shell sets it: consents that count and ledgers are there
UMask=0077
Restart=on-abnormal
RestartSec=10
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""
