"""Disk: the run folder, its checkpoints, their mirror, the trackers. Serves all, decides nothing, needs no torch."""

from .checkpoint import Checkpoint, Shelf
from .folder import RunFolder, fresh_path
from .mirror import Mirror, MirrorResult
from .tensorfile import layout_of
from .trackers import Trackers, open_trackers

__all__ = [
    "Checkpoint",
    "Mirror",
    "MirrorResult",
    "RunFolder",
    "Shelf",
    "Trackers",
    "fresh_path",
    "layout_of",
    "open_trackers",
]
