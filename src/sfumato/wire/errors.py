"""What goes wrong between parties, by name.

TransportError
├── MessageError                     a message was rejected; the receiver's state is as before
│   ├── TruncatedMessageError        shorter than it says
│   ├── MalformedMessageError        not the encoding, a length or a field out of range
│   ├── UnsupportedVersionError      another version of the encoding
│   ├── UnknownSenderError           from nobody of this session, or not from whom it should be
│   ├── MisroutedMessageError        for somebody else
│   ├── TamperedMessageError         a signature or an authentication tag does not fit
│   ├── ReplayedMessageError         of another session
│   ├── DuplicateMessageError        this sender's message of this kind was accepted already
│   └── OutOfOrderMessageError       right, but not now
├── AbortError                       the protocol ends without a result
│   ├── BelowThresholdError          too few parties left; nothing is revealed
│   ├── RevealRefusedError           both secrets of one party were asked for
│   ├── InconsistentSurvivorsError   the server's lists contradict each other or what was seen
│   └── InconsistentSharesError      shares rebuild something else than was committed to
├── UnsafeTermsError                 terms under which the guarantee does not hold
├── RepeatedSessionError             this party took part in the session before
├── ChangedTermsError                this party took part under the same label, with other terms
├── SessionMemoryError               the record of earlier answers is missing, damaged or cannot be written
├── QuantisationError                a plan or an input that does not fit the ring
└── ElectionError
    ├── TooManyColludersError        more than an election can tolerate
    ├── CopiedCommitmentError        a commitment that another party posted before
    ├── InvalidOpeningError          a nonce or a share that is not what was committed to
    ├── OmittedPostError             the board lacks what this party posted
    ├── NotAgreedError               too few parties vouch for the same board, or one for another
    ├── UnrecoverableError           a nonce can be neither revealed nor rebuilt
    └── NoCandidateError             nobody is left to be elected
"""

from __future__ import annotations

from sfumato.errors import SfumatoError


class TransportError(SfumatoError):
    """Base of what goes wrong between parties."""


class MessageError(TransportError):
    """A message was rejected; the receiver's state is as before."""


class TruncatedMessageError(MessageError):
    """A message is shorter than it says."""


class MalformedMessageError(MessageError):
    """A message is not the encoding, or a length or a field is out of range."""


class UnsupportedVersionError(MessageError):
    """A message has another version of the encoding."""


class UnknownSenderError(MessageError):
    """A message comes from nobody of this session, or not from whom it should."""


class MisroutedMessageError(MessageError):
    """A message is for somebody else."""


class TamperedMessageError(MessageError):
    """A signature or an authentication tag does not fit."""


class ReplayedMessageError(MessageError):
    """A message of another session."""


class DuplicateMessageError(MessageError):
    """This sender's message of this kind was accepted already."""


class OutOfOrderMessageError(MessageError):
    """A message that is not expected now."""


class AbortError(TransportError):
    """The protocol ends without a result."""


class BelowThresholdError(AbortError):
    """Too few parties are left; nothing is revealed."""


class RevealRefusedError(AbortError):
    """Both secrets of one party were asked for."""


class InconsistentSurvivorsError(AbortError):
    """The server's lists contradict each other or what was seen."""


class InconsistentSharesError(AbortError):
    """Shares rebuild something else than was committed to."""


class UnsafeTermsError(TransportError):
    """Terms under which the guarantee does not hold."""


class RepeatedSessionError(TransportError):
    """This party took part in the session before."""


class ChangedTermsError(TransportError):
    """This party took part under the same label before, with other terms."""


class SessionMemoryError(TransportError):
    """The record of earlier answers is missing, damaged or cannot be written."""


class QuantisationError(TransportError):
    """A plan or an input does not fit the ring."""


class ElectionError(TransportError):
    """Base of what goes wrong in an election."""


class TooManyColludersError(ElectionError):
    """More colluders than an election can tolerate."""


class CopiedCommitmentError(ElectionError):
    """A commitment that another party posted before."""


class InvalidOpeningError(ElectionError):
    """A nonce or a share that is not what was committed to."""


class OmittedPostError(ElectionError):
    """The board lacks what this party posted."""


class NotAgreedError(ElectionError):
    """Too few parties vouch for the same board, or one vouches for another."""


class UnrecoverableError(ElectionError):
    """A nonce can be neither revealed nor rebuilt."""


class NoCandidateError(ElectionError):
    """Nobody is left to be elected."""
