"""Neighbouring relations: in what the two worlds differ that an observer tries to tell apart.

=========  =======================================  ==================================================
relation   the unit in the other world              its message moves by
=========  =======================================  ==================================================
zero-out   takes part and counts as before, but     its clip
           everything it contributes is 0
remove     is not there: it is never drawn, and     its clip; twice that where denominators shrink with
           its weight is in no denominator          it (docs/hdp.md)
replace    takes part and counts as before, with    twice its clip
           any other data
=========  =======================================  ==================================================

One relation holds for a whole row, and it means the same for every observer. Who takes part, how much
it counts, schedules and trust are public under zero-out and replace. Under remove whoever sees the
participants would see that the unit is missing, so there is no guarantee towards them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Neighbours: TypeAlias = Literal["zero-out", "remove", "replace"]
