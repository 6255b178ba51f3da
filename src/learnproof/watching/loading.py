"""Weights as they are loaded into modules: do they come from elsewhere, or are they the module's own?

`model.state_dict()` hands out the living tensors, not copies. Kept as "the best weights" and loaded back, they restore nothing;
a target network that is loaded from itself never moves.

    loaded   a module was given its own tensors; the first few times

How often the state of a network that follows another is asked for is counted (lineage.py): one that is asked at every step and never
moves was meant to.
"""

from __future__ import annotations

from typing import Any

from .glances import is_a
from .patches import Patches, leave_no_trace
from .session import Session, reading, sense

TOLD = 16


def attach(session: Session) -> None:
    session.senses["loading"] = Loading(session)


class Loading:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.patches = Patches()
        self.told = 0
        self.patches.replace(session.torch.nn.Module, "load_state_dict", self._loading)
        self.patches.replace(session.torch.nn.Module, "state_dict", self._asking)

    def move_to(self, child: Session) -> None:
        self.session = child
        child.senses["loading"] = self

    def stop(self) -> None:
        self.patches.undo()

    def _loading(self, original: Any) -> Any:
        def load_state_dict(module: Any, state_dict: Any, *arguments: Any, **options: Any) -> Any:
            self.loaded(module, state_dict)
            try:
                return original(module, state_dict, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise

        return load_state_dict

    def _asking(self, original: Any) -> Any:
        def state_dict(module: Any, *arguments: Any, **options: Any) -> Any:
            if not arguments and "destination" not in options:  # else a part, asked by its whole
                self.asked(module)
            try:
                return original(module, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise

        return state_dict

    @sense("loading")
    def asked(self, module: Any) -> None:
        for follower in self.session.senses["lineage"].followers:
            if follower.module is module:
                follower.asked += 1

    @reading("loading")
    def loaded(self, module: Any, state: Any) -> None:
        if self.told >= TOLD or not is_a(state, dict) or not is_a(module, self.session.torch.nn.Module):
            return
        own = {name: parameter.data_ptr() for name, parameter in module.named_parameters()}
        given = {
            name: tensor.data_ptr()
            for name, tensor in dict.items(state)
            if name in own and is_a(tensor, self.session.torch.Tensor)
        }
        if given and all(given[name] == own[name] for name in given):
            self.told += 1
            self.session.say(
                "loaded", module=self.session.names.of_module(module), tensors=len(given), update=self.session.updates
            )
