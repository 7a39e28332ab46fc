"""What an edge has told others of its own sums, over all of its lives: a second draw of noise shows in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sfumato.deployment.messages import FrameKind, RoundPosition, decode_answer, decode_question
from sfumato.deployment.terms import DeploymentTerms
from sfumato.wire.frames import parse_frame


@dataclass
class ToldByEdges:
    """Whatever edges sent that depends on their noise.

    Attributes:
        terms: of the run.
        models: what each edge had its devices start from in an aggregation, as bytes. From the second one of
            a round on it tells the edge's noised sum of the first.
        sums: what each edge answered the cloud over a plain hop, as bytes.
    """

    terms: DeploymentTerms
    models: dict[tuple[int, RoundPosition], set[bytes]] = field(default_factory=dict)
    sums: dict[tuple[int, RoundPosition], set[bytes]] = field(default_factory=dict)

    def note(self, frames: list[bytes]) -> None:
        """Note what was sent, of which only frames of edges count."""
        for data in frames:
            frame, terms = parse_frame(data), self.terms
            if frame.sender <= terms.cloud:
                continue
            if frame.kind == FrameKind.QUESTION:
                position, _, model = decode_question(frame.payload, terms.parameters)
                self.models.setdefault((frame.sender, position), set()).add(model.tobytes())
            elif frame.kind == FrameKind.ANSWER:
                position, _, steps = decode_answer(frame.payload, terms.parameters)
                self.sums.setdefault((frame.sender, position), set()).add(steps.tobytes())

    def changed(self) -> list[tuple[int, RoundPosition]]:
        """Whose sum of which aggregation was told with different noise, or to different models."""
        return [place for told in (self.models, self.sums) for place, found in told.items() if len(found) > 1]
