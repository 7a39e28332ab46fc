"""Engines: who trains the devices of a round, and on which hardware.

Protocols, attacks and the session of a run may import this package; it imports learning and mechanisms.

    base        the interface of engines, their settings, and what they are asked for and return
    registry    the engine for a model: vectorised where ``torch.func.vmap`` can follow it
    local       all devices of a chunk at once, on one machine
    per_device  one device after another, for any module
    chunks      what engines share: threads, the check of a request, clipping of whole updates
"""
