"""The one form in which training is written down, whoever trained: see events.py."""

from .events import (
    EVIDENCE_VERSION,
    ChecklistLook,
    EnvironmentRestarted,
    Episode,
    EpisodesGiven,
    Evaluation,
    Event,
    Fault,
    Inspection,
    NotSeen,
    RunStarted,
    RunStopped,
    StageBegan,
    Update,
)
from .reader import Evidence
from .recorder import Recorder

__all__ = [
    "EVIDENCE_VERSION",
    "ChecklistLook",
    "EnvironmentRestarted",
    "Episode",
    "EpisodesGiven",
    "Evaluation",
    "Event",
    "Evidence",
    "Fault",
    "Inspection",
    "NotSeen",
    "Recorder",
    "RunStarted",
    "RunStopped",
    "StageBegan",
    "Update",
]
