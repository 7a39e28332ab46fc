"""Engines: who trains the devices of a round, and on which hardware.

Protocols, attacks and the session of a run may import this package; it imports learning and mechanisms.

    base        the interface of engines, their settings, what they are asked for and what they return
    registry    the engine for a model: vectorised where ``torch.func.vmap`` can follow it
    tiles       which devices train side by side, from the plan alone, and how tiles are worked on
    local       the devices of a tile at once
    repeatable  what makes a GPU give the same bytes every time
    ranked      either of them, shared by the ranks of a run
    per_device  one device after another, for any module
"""
