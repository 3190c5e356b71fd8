"""What the doctor says: one finding a line, its kind, and the commands that mend a fault. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum


class Status(Enum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"
    FAULT = "FAULT"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what: "user namespaces".
        status: NOTE for what works worse than it could, FAULT for what will fail.
        text: what was found, in a few words.
        remedy: shell commands that mend it; lines that begin with # explain.
    """

    subject: str
    status: Status
    text: str
    remedy: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the finding as JSON takes it."""
        return {**asdict(self), "status": self.status.value.lower(), "remedy": list(self.remedy)}


def ok(subject: str, text: str) -> Finding:
    """Return a finding that asks for nothing."""
    return Finding(subject, Status.OK, text)


def note(subject: str, text: str, *remedy: str) -> Finding:
    """Return a finding about what could be better."""
    return Finding(subject, Status.NOTE, text, remedy)


def fault(subject: str, text: str, *remedy: str) -> Finding:
    """Return a finding about what will fail, with the commands that mend it."""
    return Finding(subject, Status.FAULT, text, remedy)
