"""What papers claim about a plan, each claim beside the rigorous figure (docs/errata.md).

``accounting`` and ``report`` import from here; here ``schedule`` and what is below it are imported.

    of_plan          the claims that fit a plan
    rigorous         the rigorous figure beside a claim, at either unit
    h2fdp            Proposition 3.1
    h2fdp_condition  what it is stated for, and for which constant that is met
    hdp              Table I and the lemma of Sec. IV-C
    dp_ogl           Theorems 1 and 2, for every class of pairs
    dp_ogl_counts    Theorem 1: what it counts, and what it makes of it
    dp_ogl_theorem2  Theorem 2: strings of groups
    opacus_rdp       the orders, divergences and conversion of Opacus, which the paper's figures use
    pfels            Theorem 3
    pfels_bound      the convergence bound (23), and the ratio it advises
"""
