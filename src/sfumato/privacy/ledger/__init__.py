"""One representation of releases for every topology, and the rules of accounting on it, each written once.

Trees, groups and the air compile to an `AtomLedger` (`privacy.tree.compile`, `privacy.groups.compile`);
`exposure` then says what is charged for a unit towards a coalition. What trees and groups compute for
themselves, to be fast where there are many devices, is tested to be equal to this. docs/accounting.md ("The
general ledger") derives every rule. Imports nothing of ours outside `privacy`.

atoms.py        the vectors that travel: what is noised, from what, by whom, under which draw, to whom
audience.py     which vectors a coalition receives, and which draws it sees
dependence.py   which models depend on the unit, who passes that on, and what lies upstream
noise.py        the noise that is sure to be in a vector, source by source
drawn_noise.py  the noise that others add if they are drawn
innovations.py  the releases of one step: what each received vector adds to the ones before it
exposure.py     the exposures of a unit towards a coalition: flow, cut and any set in between
"""
