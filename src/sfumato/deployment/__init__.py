"""The parties of a spec as real parties: bytes in, bytes out, with keys, consent and a memory of their own.

    common_terms  what all parties of a run know and agree on, whatever the topology
    terms         the terms of a tree
    group_terms   the terms of overlapping groups
    kinds_of_terms  which of these a spec has
    declared_facts  how large the data are, as whoever deploys says
    refusals      which specs cannot be deployed yet
    group_refusals  which specs of groups
    messages      what frames hold
    private_files files that others must not read, or not change: looked at, and written
    memory        a party's answers, on disk
    ledger        what the runs that a data owner agreed to tell of a device's data
    owners_notes  what a device notes there before it sends
    party_folder  a party's key and memory
    randomness    a party's secret choices, from the operating system
    duties        what a party does to numbers, in words
    account_rows  what `account` says that each observer learns of a device
    consent       what a device agrees to
    known_consents  that a consent is its owner's own
    loop_code     the file of a training loop of a device's owner, which the consent names
    own_loop      a training loop of the owner's: what it is handed, and what becomes of what it returns
    rows_file     the file of a device's rows
    local_data    a device's rows, and the work on them
    device        the state machine of a device
    worker_data   a worker's rows in groups, and the work on them
    worker        the state machine of a worker of groups
    masked_hops   secure aggregation over a hop: which terms, and the child's side
    parent_hop    a child's side of the hop to its parent, plain or masked
    fixed_draws   whose answers a trusted aggregator adds up, where it draws a fixed number
    collecting    what aggregators do over a plain hop: ask, add up; and their noise
    masked_sums   what they do over a masked one
    edge          the state machine of an edge
    cloud         the state machine of the cloud, and of the masters of groups
    calls         calls to several parties, in turn or at the same time
    carrier       takes frames from party to party
    group_carrier  takes them between masters and workers of groups
    subtree       an aggregator with all below it, as its parent meets it
    played_rounds  the rounds of a deployment, as a session plays them, whatever the topology
    rounds        those of a tree
    group_rounds  those of groups
    master_rounds  those of one master, which keeps the model of its own group
    local_parties the parties of a run on this machine: folders, terms, data
    rehearsal     all parties in one process, and a run folder
    section_files reads the YAML files of a party's folder
    invitation    what a party's folder holds, and how the party starts from it
    frame_exchange  what is said over a connection to a party
    doors         where the parties of one machine listen, and are reached
    flower        Flower as what carries frames between them
    sockets       a party behind a Unix socket of its owner
    local_processes  `deploy --local`: a process a party
    hop_keys      a party's keys, and their public halves
    hop_proofs    that both ends of a hop are who the terms say
    hops_file     whom a party connects to, by which certificates
    neighbours    the hops of a party as it starts: who is at the other ends
    newcomers     connections from who has not introduced himself yet
    rare_lines    lines of a log that others can cause
    tls_hops      a hop between machines: TLS of two registered keys
    several_parents  a worker that is connected to each of its masters
    asked_again   a worker as a master asks it, until all of its masters have asked
    parties_file  who takes part, and where: what `deploy --parties` reads
    party_sheet   a sheet in words, a systemd unit
    handover      `deploy --parties`: a folder a party
    remote_rounds  the rounds of the cloud, or of a master, whose children are on other machines
    remote_party  a party that starts from it, and reaches others over TLS
    hops_check    `deploy check`: could a party start, does every hop answer

The protocol is derived in docs/deployment.md, that of groups in docs/deployment-groups.md. May be imported by
``sfumato.cli`` and ``sfumato``; imports ``sfumato.simulation`` and what lies below it.
"""
