"""Verifiable uniform elections by commit and recoverable reveal (hdp.txt section IV-A).

odds         closed forms and bounds
lottery      from nonces to a winner and its successors
messages     payloads, as bytes
party        one candidate
transcript   checking an election, by anybody
session      drives parties, with failures
simulation   many elections without messages; the unsafe rule, for comparison
"""
