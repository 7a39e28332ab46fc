"""The rules of exposure in a general form: a graph of all vectors that travel, for every topology.

`trees` and `groups` translate the facts of the two families to a `MessageGraph`; `exposure` then says what is
charged for a unit towards a coalition. What Sfumato computes for trees and groups, to be fast where there are
many devices, must be equal to this. docs/accounting.md ("The general form") derives every rule.

vectors.py      the vectors that travel: what is noised, from what, by whom, under which draw, to whom
trees.py        the facts of a tree as a graph
groups.py       the facts of overlapping groups as a graph
audience.py     which vectors a coalition receives, and which draws it sees
dependence.py   which models depend on the unit, who passes that on, and what lies upstream
noise.py        the noise that is sure to be in a vector, source by source
drawn_noise.py  the noise that others add if they are drawn
innovations.py  the releases of one step: what each received vector adds to the ones before it
exposure.py     the exposures of a unit towards a coalition: flow, cut and any set in between
"""
