"""What travels between parties: bytes that are framed, signed, sealed and remembered.

``secure_aggregation``, ``election``, ``schedule``, ``mechanisms`` and ``protocols`` import from here; here
nothing of ours but ``errors`` is imported.

    frames          the envelope of every message: versioned, typed, length-checked, signed
    keys            identities, key agreement, derived keys, sealed boxes
    key_stream      the AES-256-CTR stream of a key
    session_memory  what a party answered, kept longer than the process
    owned_file      the file of records of one process, in which that is kept
    errors          what goes wrong between parties, by name
"""
