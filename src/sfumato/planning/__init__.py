"""From targets of ε to the noise multiplier of every noise source (docs/planning-method.md). Needs no torch.

    planner.py         `plan`: the least noise that meets all targets
    targets.py         targets as given, the pairs of a unit and an observer that each is about, and their ε
    family.py          what a plan needs to know of a family of topologies
    tree_planning.py   the same of stars and trees
    group_planning.py  the same of overlapping groups
    group_descent.py   the least noise of groups, whose exposed sets are chosen anew at every solution
    exposure_response.py  how the releases of one exposed set depend on the sources
    sources.py         classes of interchangeable noise sources, and specs with given intensities
    noise_response.py  how the releases of a pair depend on the sources' intensities
    composed_response.py  the same where ε is that of several kinds of releases: records that are drawn
    convex_program.py  the convex programme and its solver (extra ``plan``: cvxpy, Clarabel)
    allocate.py        the least noise for given targets: which bounds and which sources to use
    certification.py   the planned spec accounted for; noise is raised until every target holds
    noise_of_others.py  less noise where that of others who are drawn counts
    problem.py         what a plan starts from; targets that no noise can meet are refused
    conflict.py        the message about targets that need more noise than is allowed
    costs.py           energy, delay and bytes of a training, before it is played
    cost_search.py     participation and round length of least energy or delay with allowed noise
    result.py          the planned spec with its figures

May be imported by ``sfumato.cli`` and ``sfumato``; imports ``sfumato.accounting`` and what lies below it.
"""

from sfumato.planning.planner import plan
from sfumato.planning.result import PlannedSpec

__all__ = ["PlannedSpec", "plan"]
