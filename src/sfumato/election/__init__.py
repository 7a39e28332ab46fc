"""Verifiable uniform elections by commit and recoverable reveal (hdp.txt section IV-A).

Bytes in, bytes out. ``schedule`` and ``report`` import from here; here ``secure_aggregation`` and ``wire``.

terms        what all parties agree on beforehand; its hash names the election
odds         closed forms and bounds
lottery      from nonces to a winner and its successors
messages     payloads, as bytes
commitments  what a dealer commits to, and what opens it
reading      which posts belong on a board, and what they say
board        takes posts, and refuses by name what is not one
party        one candidate
transcript   checking an election, by anybody
session      drives parties, with failures
"""
