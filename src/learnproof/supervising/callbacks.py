"""Callbacks for other people's trainers: each joins when training starts, and judges when it ends.

    model.learn(100_000, callback=learnproof.callbacks.for_sb3())
    Trainer(..., callbacks=[learnproof.callbacks.for_hf()])
    lightning.Trainer(callbacks=[learnproof.callbacks.for_lightning()])

The object that comes back has `.proof` (supervising/joining.py): its verdict and its folder, once training has ended.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ..errors import MissingExtra
from .joining import Watching, watch


def for_sb3(*, out: str | Path | None = None, waive: dict[str, str] | None = None) -> Any:
    """A BaseCallback of Stable-Baselines3."""
    base = _imported("stable_baselines3.common.callbacks", "sb3").BaseCallback

    class LearnproofCallback(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.proof: Watching | None = None

        def _on_training_start(self) -> None:
            policy = self.model.policy
            optimizers = [getattr(policy, "optimizer", None), getattr(self.model, "ent_coef_optimizer", None)]
            self.proof = watch(policy, *(o for o in optimizers if o is not None), out=out, name="sb3", waive=waive)
            self.proof.begin()

        def _on_step(self) -> bool:
            return True

        def _on_training_end(self) -> None:
            if self.proof is not None:
                self.proof.end("learn() ended")

    return LearnproofCallback()


def for_hf(*, out: str | Path | None = None, waive: dict[str, str] | None = None) -> Any:
    """A TrainerCallback of Hugging Face's Trainer, and so of TRL's."""
    base = _imported("transformers", "hf").TrainerCallback

    class LearnproofCallback(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.proof: Watching | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            things = [given.get("model"), given.get("optimizer")]
            self.proof = watch(*(thing for thing in things if thing is not None), out=out, name="hf", waive=waive)
            self.proof.begin()

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if self.proof is not None:
                self.proof.end("train() ended")

    return LearnproofCallback()


def for_lightning(*, out: str | Path | None = None, waive: dict[str, str] | None = None) -> Any:
    """A Callback of Lightning."""
    base = _imported("lightning.pytorch", "lightning").Callback

    class LearnproofCallback(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.proof: Watching | None = None

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            self.proof = watch(pl_module, *trainer.optimizers, out=out, name="lightning", waive=waive)
            self.proof.begin()

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            if self.proof is not None:
                self.proof.end("fit() ended")

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            if self.proof is not None:
                self.proof.end(f"fit() raised {type(exception).__name__}")

    return LearnproofCallback()


def _imported(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise MissingExtra(name, extra, "This callback") from None
