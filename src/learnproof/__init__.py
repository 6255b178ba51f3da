"""Reinforcement learning that proves its agents learn.

    import learnproof
    result = learnproof.train("CartPole-v1", steps=50_000)
    print(result.verdict.verdict, result.path)

The names below are the public ones; each is imported when it is first used, so that `import learnproof` is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .config import EngineSettings as EngineSettings
    from .config import Settings as Settings
    from .config import load_settings as load_settings
    from .errors import LearnproofError as LearnproofError
    from .evidence import Evidence as Evidence
    from .exporting.export import export_policy as export_policy
    from .proof.performance import PairedScores as PairedScores
    from .proof.verdict import Verdict as Verdict
    from .supervising import callbacks as callbacks
    from .supervising.joining import watch as watch
    from .sweeping.running import resume_sweep as resume_sweep
    from .sweeping.running import sweep as sweep
    from .training.api import RunResult as RunResult
    from .training.api import evaluate as evaluate
    from .training.api import load_policy as load_policy
    from .training.api import resume as resume
    from .training.api import train as train
    from .training.api import verify as verify
    from .training.curriculum import CurriculumLook as CurriculumLook
    from .training.episode_metrics import TrainingMetrics as TrainingMetrics
    from .training.episode_results import EpisodeResult as EpisodeResult
    from .training.episodes import TrainingEngine as TrainingEngine
    from .training.gradient_flow import gradient_flow as gradient_flow

_HOMES = {
    "CurriculumLook": "training.curriculum",
    "EngineSettings": "config",
    "EpisodeResult": "training.episode_results",
    "Evidence": "evidence",
    "LearnproofError": "errors",
    "PairedScores": "proof.performance",
    "RunResult": "training.api",
    "Settings": "config",
    "TrainingEngine": "training.episodes",
    "TrainingMetrics": "training.episode_metrics",
    "Verdict": "proof.verdict",
    "evaluate": "training.api",
    "export_policy": "exporting.export",
    "gradient_flow": "training.gradient_flow",
    "load_policy": "training.api",
    "load_settings": "config",
    "resume": "training.api",
    "resume_sweep": "sweeping.running",
    "sweep": "sweeping.running",
    "train": "training.api",
    "verify": "training.api",
    "watch": "supervising.joining",
}
_MODULES = {"callbacks": "supervising.callbacks"}

__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{_MODULES[name]}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'learnproof' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
