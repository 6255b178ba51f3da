"""Which classes of environments are listened to: their `reset` and `step` are replaced.

Which environment is the outermost shows at `reset`: every class's `reset` is replaced (they are rare), and the class whose reset was
called from outside gets its `step` replaced too, so that the wrappers beneath it run untouched. Of classes that belong to no
library (homemade.py) both are replaced, until an answer shows that they are no environments.
"""

from __future__ import annotations

from typing import Any

from . import homemade
from .forms import in_the_form_of
from .patches import Patches, leave_no_trace, with_subclasses
from .session import Session, sense

AROUND = """
if our_watcher is None:
    return our_original({passed})
our_turn = our_watcher.enter_WHAT({given}, {named})
try:
    our_answer = our_original({passed})
except BaseException as our_error:
    our_watcher.leave_no_trace(our_error)
    raise
finally:
    if our_turn:
        our_watcher.local.inside = False
if our_turn:
    our_watcher.leave_WHAT({given}, {named}, our_answer)
elif our_turn is None:
    our_watcher.left_inside({given}, our_answer)
return our_answer
"""
"""What surrounds a `reset` or a `step`; as text, because it takes the parameters of the original (forms.py)."""


class Classes:
    def __init__(self, session: Session, watcher: Any) -> None:
        self.session = session
        self.watcher = watcher
        """The Environments that hear of every reset and step."""
        self.patches = Patches()
        self.stepped: dict[type, bool] = {}
        self.future: list[tuple[Any, Any]] = []
        """Base classes of libraries, each with the __init_subclass__ that it had itself."""
        self.home_made: dict[type, bool] = {}
        """Classes of the script's own -> whether what they answer has been found to be a step."""
        self.others: set[type] = set()
        """Those that turned out to be something else."""

    def undo(self) -> None:
        self.patches.undo()
        for base, own in self.future:
            if own is None:
                del base.__init_subclass__
            else:
                base.__init_subclass__ = own
        self.future.clear()

    def of_a_library(self, kind: type) -> bool:
        return any(issubclass(kind, base) for base, _ in self.future)

    def watch(self, base: Any) -> None:
        """Replace `reset` of a base class and of all its subclasses, those of the future included."""
        for kind in with_subclasses(base):
            self.patches.replace(kind, "reset", self._resetting)
            if self.session.joined:  # environments may be running already, and their reset is behind us
                self.patches.replace(kind, "step", self._stepping)
        self._open_doors()
        self._watch_future_classes(base)

    def watch_home_made(self, kind: type) -> None:
        """Replace `reset` and `step` of a class that belongs to no library, wherever among its bases they stand."""
        if kind in self.home_made or kind in self.others or self.of_a_library(kind):
            return
        self.home_made[kind] = False
        self._open_doors()
        for name, make in (("reset", self._resetting), ("step", self._stepping)):
            owner = next(each for each in kind.__mro__ if name in vars(each))
            self.patches.replace(owner, name, make)

    def is_a_step(self, kind: type, answer: Any) -> bool:
        """Whether an answer is that of an environment; of a home-made class the first one decides."""
        if self.home_made.get(kind) is not False:
            return True
        if homemade.is_a_step(answer):
            self.home_made[kind] = True
            return True
        self.others.add(kind)
        del self.home_made[kind]
        return False

    @sense("environments")
    def watch_steps(self, kind: Any) -> None:
        if kind in self.stepped:
            return
        self.stepped[kind] = True
        for owner in kind.__mro__:
            if "step" in vars(owner):
                self.patches.replace(owner, "step", self._stepping)
                return

    def _open_doors(self) -> None:
        if self.watcher not in self.session.window_doors:
            self.session.window_doors.append(self.watcher)

    def _watch_future_classes(self, base: Any) -> None:
        own = vars(base).get("__init_subclass__")
        classes = self

        def __init_subclass__(kind: Any, /, **options: Any) -> None:
            try:
                if own is not None:
                    own.__func__(kind, **options)
                else:
                    super(base, kind).__init_subclass__(**options)
            except BaseException as error:
                leave_no_trace(error)
                raise
            classes.patches.replace(kind, "reset", classes._resetting)

        base.__init_subclass__ = classmethod(__init_subclass__)
        self.future.append((base, own))

    def _resetting(self, original: Any) -> Any:
        return in_the_form_of(
            original, AROUND.replace("WHAT", "reset"), our_watcher=self.watcher, our_original=original
        )

    def _stepping(self, original: Any) -> Any:
        return in_the_form_of(original, AROUND.replace("WHAT", "step"), our_watcher=self.watcher, our_original=original)
