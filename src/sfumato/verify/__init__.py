"""Recomputes every ε of a run folder without the accountant (docs/certificates.md).

It imports nothing else of Sfumato, and of other packages NumPy, SciPy, PyYAML and dp_accounting only, so that
a mistake in the accountant is not repeated in the check. Only the command line and ``sfumato.checked`` may
import it. It runs by itself, too: ``python -m sfumato.verify RUN``, or the archive that
``sfumato verify --write-checker`` writes.

What is checked, in this order (docs/certificates.md says what is not):

1. *Hashes.* ``manifest.json`` has its own hash and that of every file that it lists; ``spec.yaml``,
   ``privacy.json`` and ``ledger.json`` name the same spec, and it has the hash that they name.

    checker.py           checks a run folder: all of the below; ``main`` is the command of the archive
    folder.py            reads the files of a run strictly, and compares hashes
    read.py              figures, counts and truth values of JSON and YAML files
    parties.py           names of units and observers
    comparison.py        how figures are compared
    archive.py           writes the checker as one file
    __main__.py          runs it

2. *The spec.* Facts in ``ledger.json`` that ``spec.yaml`` determines are those of the spec.

    spec_facts.py        of all protocols, and of devices that move
    spec_tree.py         of trees: who is where, takes part, sends what and adds which noise
    spec_groups.py       of overlapping groups
    spec_records.py      of draws of records: rates, and how far one record moves a message
    spec_settings.py     what the spec itself says: trees, sites, eras, trust, dropouts
    examples_held.py     how many examples every device holds, dealt out again by the rule of partition

3. *The exposed set.* For every row the releases are derived again from the facts: what the observer receives
   is in the set; a release moves as far as the facts say, has no more noise and no better hidden draw; no
   noise of the observer counts, and none counts twice. Rows stand for as many pairs as there are.

    releases.py          a release and a draw as the facts have them, against those stated
    tree_structure.py    a tree: who is where, who receives what, how participants are drawn
    tree_noise.py        the noise in an average that a coalition does not know
    tree_exposures.py    the releases that a coalition meets in a tree
    moving_exposures.py  the same where devices move, or trust changes: one tree for every era
    group_structure.py   groups: who is in which when, who receives what, who is drawn
    group_exposures.py   the releases that a coalition meets in groups
    tree_pairs.py        pairs of unit and observer that are alike in a tree
    moving_pairs.py      the same where devices move, and whether rows stand for every pair
    group_pairs.py       the same in groups
    facts.py             the facts of every kind of protocol, and a bound that is checked against them
    folded_rows.py       whether rows of a tree stand for no kind of pairs that is charged more than they are
    group_pair_counts.py whether every pair in groups is counted in a row that bounds it
    pair_counts.py       whether rows stand for every pair, rate and site

4. *The charge.* The terms that were composed follow from the releases.

    rows.py              one row and its certificate
    draws.py             draws and releases of a certificate, and the terms that they amount to
    drawn_noise.py       mixtures over whose noise is there, and over outcomes of an election
    elections.py         observers that may be elected
    records.py           records that their devices draw

5. *ε.* It is recomputed from the terms. The stated ε must not be smaller.

    epsilon.py           of all terms, by closed forms and mixtures or as below; against the stated one
    loss_curves.py       hockey-stick curves of one release under every kind of draw
    composition.py       many releases: by dp_accounting, or by an integral of moments
"""
