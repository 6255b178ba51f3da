"""Learning made impossible on request (`learnproof watch --placebo`): the one place where a script is changed on purpose.

    frozen     every optimizer step is undone: learning rate 0, whatever the optimizer
    shuffled   what a row of a batch is told about its action is another row's: the gradients of log-probabilities and of chosen
               values change places along the batch, the gradients of single ones get a random sign, and labels and constant
               targets of regressions change places. Everything else runs as it did.

Returns that rise all the same owe nothing to what was learnt from them.
"""

from __future__ import annotations

import os
from typing import Any

from .session import Session

ASKED = "LEARNPROOF_WATCH_PLACEBO"
COMPARISONS = (
    "mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss",
    "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
)  # fmt: skip


def attach(session: Session) -> None:
    kind = os.environ.get(ASKED, "")
    if kind:
        session.senses["placebo"] = Frozen(session) if kind == "frozen" else Shuffled(session)


class Frozen:
    def __init__(self, session: Session) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self.session = session
        self.cuts = 0
        self.kept: list[tuple[Any, Any]] = []
        self.handles = [
            register_optimizer_step_pre_hook(self.before),
            register_optimizer_step_post_hook(self.after),
        ]

    def before(self, optimizer: Any, *rest: Any) -> None:
        self.kept = [(p, p.detach().clone()) for group in optimizer.param_groups for p in group["params"]]

    def after(self, optimizer: Any, *rest: Any) -> None:
        with self.session.torch.no_grad():
            for parameter, value in self.kept:
                parameter.copy_(value)
        self.kept = []
        self.cuts += 1

    def last_words(self) -> None:
        self.session.say("placebo", last=True, kind="frozen", cuts=self.cuts)

    def stop(self) -> None:
        for handle in self.handles:
            handle.remove()


class Shuffled:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.torch = session.torch
        self.cuts = 0
        self.generator = self.torch.Generator()
        self.generator.manual_seed(0)
        self.undoing: list[tuple[Any, str, Any]] = []
        for kind in _distributions(self.torch):
            if "log_prob" in vars(kind):
                self._replace(kind, "log_prob", self._outcome_hidden)
        self._replace(self.torch.Tensor, "gather", self._outcome_hidden)
        self._replace(self.torch, "gather", self._outcome_hidden)
        for name in COMPARISONS:
            self._replace(self.torch.nn.functional, name, self._target_exchanged)

    def _replace(self, owner: Any, name: str, make: Any) -> None:
        original = getattr(owner, name)
        self.undoing.append((owner, name, original))
        setattr(owner, name, make(original))

    def _outcome_hidden(self, original: Any) -> Any:
        def hidden(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            if result.requires_grad and result.is_floating_point():
                self.cuts += 1
                result.register_hook(self._exchanged)
            return result

        return hidden

    def _exchanged(self, gradient: Any) -> Any:
        if gradient.numel() <= 1 or gradient.shape[0] <= 1:
            sign = 1.0 if self.torch.rand((), generator=self.generator) < 0.5 else -1.0
            return gradient * sign
        return gradient[self._order(gradient)]

    def _target_exchanged(self, original: Any) -> Any:
        def exchanged(input: Any, target: Any, *arguments: Any, **options: Any) -> Any:
            if not target.requires_grad and target.dim() and target.shape[0] > 1:
                self.cuts += 1
                target = target[self._order(target)]
            return original(input, target, *arguments, **options)

        return exchanged

    def _order(self, rows: Any) -> Any:
        return self.torch.randperm(rows.shape[0], generator=self.generator).to(rows.device)

    def last_words(self) -> None:
        self.session.say("placebo", last=True, kind="shuffled", cuts=self.cuts)

    def stop(self) -> None:
        for owner, name, original in reversed(self.undoing):
            setattr(owner, name, original)


def _distributions(torch: Any) -> list[Any]:
    from .patches import with_subclasses

    return with_subclasses(torch.distributions.Distribution)
