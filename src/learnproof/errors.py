"""Every error that learnproof raises on purpose.

    LearnproofError
    ├── UsageError                exit code 2: what was asked for cannot be done as asked
    │   ├── SettingsError         a setting is unknown, of the wrong type or out of range
    │   ├── UnknownEnvironment    no environment has this id
    │   ├── UnsupportedSpace      an observation or action space that no network here can take
    │   └── MissingExtra          an optional dependency is not installed
    ├── EnvironmentFault          the environment broke its contract (NaN, shape, dtype, raised)
    ├── EpisodeRefused            a finished episode that somebody else collected does not fit (shape, NaN, log-probabilities)
    ├── TrainingFault             an update would have spoilt the weights (a loss or gradient that is not finite)
    ├── RunFolderError            a run folder is missing, foreign, half-written or in use
    ├── CheckpointError           a checkpoint cannot be used
    │   ├── CheckpointDamaged     bytes differ from what was written, or the file is hostile
    │   ├── CheckpointMismatch    a whole checkpoint, of another network, environment or setting
    │   └── CheckpointVersion     written by a version whose form is not known here
    ├── EvidenceError             an evidence file that cannot be read
    ├── ExportFault               an exported file does not act as its policy does
    └── DiskFull                  the disk took no more; what was there before is still there

Each message says what happened, with the numbers, the likeliest cause, and what to do next. Everything that is
not in this tree is a bug of ours or of the environment, and passes through with its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LearnproofError(Exception):
    """The root: catch this to catch everything that learnproof says on purpose."""

    exit_code = 1


class UsageError(LearnproofError):
    exit_code = 2


class SettingsError(UsageError):
    pass


class UnknownEnvironment(UsageError):
    pass


class UnsupportedSpace(UsageError):
    pass


class MissingExtra(UsageError):
    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'learnproof[{extra}]'"
        )


class EnvironmentFault(LearnproofError):
    pass


class EpisodeRefused(LearnproofError):
    """`index` (in the call) and `id` (as the collector named it) say which one."""

    def __init__(self, index: int, id: str, reason: str) -> None:
        self.index = index
        self.id = id
        named = f" (id {id!r})" if id else ""
        super().__init__(f"Episode {index}{named} was refused: {reason} Nothing of this call was trained on or kept.")


class TrainingFault(LearnproofError):
    pass


class RunFolderError(LearnproofError):
    pass


class CheckpointError(LearnproofError):
    pass


class CheckpointDamaged(CheckpointError):
    pass


class CheckpointMismatch(CheckpointError):
    pass


class CheckpointVersion(CheckpointError):
    pass


class EvidenceError(LearnproofError):
    pass


class ExportFault(LearnproofError):
    pass


class DiskFull(LearnproofError):
    pass


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean X?' for the nearest known word, or an empty string where none is near."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    if not near:
        return ""
    return f" Did you mean {' or '.join(repr(name) for name in near)}?"
