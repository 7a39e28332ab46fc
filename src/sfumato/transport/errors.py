"""What goes wrong between parties, by name.

TransportError
├── MessageError                     a message was rejected; the receiver's state is as before
│   ├── TruncatedMessageError        shorter than it says
│   ├── MalformedMessageError        not the encoding, a length or a field out of range
│   ├── UnsupportedVersionError      another version of the encoding
│   ├── UnknownSenderError           from nobody of this session, or not from whom it should be
│   ├── MisroutedMessageError        for somebody else
│   ├── TamperedMessageError         a signature or an authentication tag does not fit
│   ├── ReplayedMessageError         of another session, or a session joined before
│   ├── DuplicateMessageError        this sender's message of this kind was accepted already
│   └── OutOfOrderMessageError       right, but not now
├── AbortError                       the protocol ends without a result
│   ├── BelowThresholdError          too few parties left; nothing is revealed
│   ├── RevealRefusedError           both secrets of one party were asked for
│   ├── InconsistentSurvivorsError   the server's lists contradict each other or what was seen
│   └── InconsistentSharesError      shares rebuild something else than was committed to
├── QuantisationError                a plan or an input that does not fit the ring
└── ElectionError
    ├── TooManyColludersError        more than an election can tolerate
    ├── NotAgreedError               too few parties vouch for the same board
    ├── UnrecoverableError           a nonce can be neither revealed nor rebuilt
    ├── TranscriptError              a transcript that does not check
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
    """A message of another session, or a session that was joined before."""


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


class QuantisationError(TransportError):
    """A plan or an input does not fit the ring."""


class ElectionError(TransportError):
    """Base of what goes wrong in an election."""


class TooManyColludersError(ElectionError):
    """More colluders than an election can tolerate."""


class NotAgreedError(ElectionError):
    """Too few parties vouch for the same board."""


class UnrecoverableError(ElectionError):
    """A nonce can be neither revealed nor rebuilt."""


class TranscriptError(ElectionError):
    """A transcript does not check."""


class NoCandidateError(ElectionError):
    """Nobody is left to be elected."""
