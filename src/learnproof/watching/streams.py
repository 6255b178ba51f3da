"""One environment as a stream of steps, whichever form its answers have: Gymnasium's, SB3's vectors, the older four values."""

from __future__ import annotations

from typing import Any

from .glances import asked, held, is_a
from .identity import identities


class Stream:
    """One environment that the script steps, with its copies."""

    def __init__(self, index: int, copies: int, vector: bool, form: str, numpy: Any) -> None:
        self.index = index
        self.copies = copies
        self.vector = vector
        self.form = form
        """gymnasium, sb3 (vector, dones merged), home-made (homemade.py)."""
        self.home_made = form.startswith("home-made")
        self.cut_inside: bool | None = None
        """Of a home-made one around Gymnasium's: whether that one was cut with the last step; None where there is none inside."""
        self.steps = 0
        self.episodes = 0
        self.returns: Any = numpy.zeros(copies) if vector else [0.0]
        """Of the episodes that are under way."""
        self.begun = [0] * copies
        """`steps` when the episode began."""
        self.ended: Any = numpy.zeros(copies, bool) if vector else None
        """Of a vector: which copies ended with the last step. Under next-step autoreset the next one only resets them."""
        self.any_ended = False
        self.next_step_autoreset = False
        self.held: Any = None
        """The observations that the script holds now, as rows of our own, while transitions are kept."""
        self.named: Any = None
        """The rows that were named last, and their names: what one step ends with, the next one begins with."""
        self.names: Any = None
        self.names_before: Any = None
        """Names of the rows with which the last step that was entered began."""
        self.last_observation: Any = None
        """The observation itself, until the next step or the environment's end: a window may begin with it."""
        self.longest = 0
        """Steps of the longest episode."""
        self.limit: int | None = None
        """Steps after which a TimeLimit among its wrappers cuts an episode."""
        self.lengths: dict[int, int] = {}
        """Of a home-made one: length of an episode -> how many ended with it."""
        self.any_shorter = False
        self.hidden_limits = 0
        self.ends_inside = self.hidden_ends = 0
        """Episodes that were cut there, and that the outermost wrapper says ended by themselves."""
        self.spec: Any = None
        self.own: Any = None
        """Weak reference to the environment itself, or to its first copy, where it has no id."""
        self.cores: list[int] = []
        """id of the environment inside of all wrappers, for each copy; empty where no wrapper changes rewards."""
        self.changed: str | None = None
        """Why it cannot be made again from its id; None where it can."""

    def names_of(self, numpy: Any, rows: Any) -> Any:
        """Identities of rows that were held when a step began."""
        return self.names if rows is self.named else identities(numpy, rows)

    def let_go(self, environment: Any) -> None:
        self.last_observation = None


def parts_of(answer: Any, form: str) -> tuple[Any, Any, Any, Any, Any]:
    if form == "sb3":
        observation, reward, done, infos = answer
        import numpy

        cut = numpy.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        return observation, reward, done & ~cut, cut, infos
    if len(answer) == 4:  # the form before Gymnasium
        observation, reward, done, info = answer
        truncated = bool(info.get("TimeLimit.truncated", False)) if is_a(info, dict) else False
        return observation, reward, bool(done) and not truncated, truncated, info
    return answer  # type: ignore[no-any-return]


def array_of(value: Any) -> Any:
    """The numbers of a tensor; anything else as it is."""
    if not hasattr(type(value), "detach"):
        return value
    value = value.detach().cpu()
    return (value.double() if value.is_floating_point() else value).numpy()


def time_limit_of(environment: Any) -> int | None:
    """Of the environment, or of the first copy in a vector, under whatever wrappers."""
    core = environment
    for _ in range(32):
        if core is None:
            return None
        if type(core).__name__ == "TimeLimit":
            limit = held(core, "_max_episode_steps")
            return limit if isinstance(limit, int) else None
        copies = held(core, "envs")
        core = copies[0] if is_a(copies, (list, tuple)) and copies else held(core, "venv") or held(core, "env")
    return None


def cuts_inside(numpy: Any, environment: Any, copies: int) -> Any:
    """Which copies of an SB3 vector were cut by their time limit, as the vector inside all wrappers noted it."""
    core = environment
    for _ in range(16):
        inner = held(core, "venv")
        if inner is None:
            break
        core = inner
    noted: Any = held(core, "buf_infos") if core is not environment else None
    if not is_a(noted, list) or len(noted) != copies:
        return numpy.zeros(copies, bool)
    return numpy.array([is_a(info, dict) and bool(info.get("TimeLimit.truncated", False)) for info in noted])


def success_of(info: Any, copy: int | None) -> bool | None:
    """What the environment itself says of an episode that has ended: `is_success` or `success`; None where it says nothing."""
    if is_a(info, (list, tuple)):  # SB3: one dictionary per copy
        return None if copy is None or copy >= len(info) else success_of(info[copy], None)
    if not is_a(info, dict):
        return None
    final = info.get("final_info") if copy is not None else None
    if final is not None:
        found = success_of(final, copy)
        if found is not None:
            return found
    for name in ("is_success", "success"):
        told = info.get(name)
        if copy is not None and told is not None:
            told = told[copy] if hasattr(type(told), "__getitem__") and len(told) > copy else None
        if told is not None and (is_a(told, (bool, int, float)) or type(told).__module__ == "numpy"):
            return bool(told)
    return None


def autoreset_of(environment: Any, sb3: bool) -> str | None:
    if sb3:
        return "same_step"
    metadata = asked(environment, "metadata") or {}
    mode = metadata.get("autoreset_mode")
    text = str(getattr(mode, "value", mode)).lower()
    for name in ("next_step", "same_step", "disabled"):
        if name in text.replace("-", "_").replace("nextstep", "next_step").replace("samestep", "same_step"):
            return name
    return None
