"""One run over several processes, the *ranks* that torchrun starts: who they are, what they exchange.

    launch         which rank this process is, from the environment; what it may print
    ranks          what ranks exchange; a process that is alone exchanges nothing
    process_group  exchanges by torch.distributed
    division       independent jobs divided among ranks and their threads
    agreement      ranks that do not fit together refuse to start

``sfumato.engine``, ``sfumato.protocols``, ``sfumato.simulation`` and ``sfumato.cli`` may import this package.
torch.distributed is imported only where a run has more than one rank. docs/several-machines.md says how such
a run is started, and what every rank holds.
"""
