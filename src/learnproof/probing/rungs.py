"""The rungs: tables of states, actions and outcomes, each so small that one thing alone can go wrong in it.

The first three ask for the value of a state and can be answered only by learners that have one; the others ask for
actions. From `delayed_credit` on each problem comes in two worlds, told apart by the last number of the observation, with
the actions exchanged between them, so that a learner which always does the same is not right by luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

End = Literal["", "terminated", "truncated"]


@dataclass(frozen=True)
class Outcome:
    probability: float
    reward: float
    then: str
    """The state that is observed next; where the episode terminated, nothing follows it."""
    end: End = ""


@dataclass(frozen=True)
class Rung:
    name: str
    asks: Literal["values", "actions"]
    question: str
    observations: Mapping[str, tuple[float, ...]]
    starts: Mapping[str, float]
    moves: Mapping[str, Sequence[Sequence[Outcome]]]
    """For each state, for each action, what may come of it."""
    suspect: str
    """What to look at first when the answer is wrong in no way that is known by name."""
    tells: tuple[str, ...] = ()
    """The known faults that this rung was made to find (solving.FAULTS); others may fail on it too."""
    steps: int = 6_000
    """Steps of training that a healthy learner needs, with room to spare."""

    @property
    def actions(self) -> int:
        return max(len(choices) for choices in self.moves.values())


def _sure(reward: float, then: str, end: End = "") -> list[Outcome]:
    return [Outcome(1.0, reward, then, end)]


def _final(reward: float, state: str) -> list[Outcome]:
    return _sure(reward, state, "terminated")


def _in_two_worlds(
    observations: Mapping[str, tuple[float, ...]],
    starts: Mapping[str, float],
    moves: Mapping[str, Sequence[Sequence[Outcome]]],
) -> tuple[dict[str, tuple[float, ...]], dict[str, float], dict[str, list[list[Outcome]]]]:
    seen: dict[str, tuple[float, ...]] = {}
    begun: dict[str, float] = {}
    moved: dict[str, list[list[Outcome]]] = {}
    for world, mark in (("left", -1.0), ("right", 1.0)):
        for state, observation in observations.items():
            seen[f"{state}, {world}"] = (*observation, mark)
        for state, probability in starts.items():
            begun[f"{state}, {world}"] = probability / 2
        for state, choices in moves.items():
            ordered = list(choices) if world == "left" else list(reversed(choices))
            moved[f"{state}, {world}"] = [
                [Outcome(o.probability, o.reward, f"{o.then}, {world}", o.end) for o in outcomes]
                for outcomes in ordered
            ]
    return seen, begun, moved


def _constant_reward() -> Rung:
    return Rung(
        "constant_reward",
        "values",
        "One state, one step, reward 1: is its value 1?",
        {"only": (1.0,)},
        {"only": 1.0},
        {"only": [_final(1.0, "only"), _final(1.0, "only")]},
        "the value loss, its sign and coefficient, and the optimizer that holds the value network",
        tells=("reversed", "end_ignored"),
        steps=4_000,
    )


def _reward_by_observation() -> Rung:
    return Rung(
        "reward_by_observation",
        "values",
        "The reward is what is observed: does the value follow the observation?",
        {"plus": (1.0,), "minus": (-1.0,)},
        {"plus": 0.5, "minus": 0.5},
        {
            "plus": [_final(1.0, "plus"), _final(1.0, "plus")],
            "minus": [_final(-1.0, "minus"), _final(-1.0, "minus")],
        },
        "what the value network is given to see, and rows of a batch that are matched with another row's target",
        tells=("reversed",),
        steps=4_000,
    )


def _delayed_reward() -> Rung:
    return Rung(
        "delayed_reward",
        "values",
        "The reward comes one step late: does the value of the first state see it, discounted?",
        {"first": (1.0, 0.0), "second": (0.0, 1.0)},
        {"first": 1.0},
        {
            "first": [_sure(0.0, "second"), _sure(0.0, "second")],
            "second": [_final(1.0, "second"), _final(1.0, "second")],
        },
        "the bootstrap: the next state's value, its discount and the mask of ended episodes",
        tells=("myopic", "reversed", "end_ignored"),
    )


def _action_reward() -> Rung:
    return Rung(
        "action_reward",
        "actions",
        "One of four actions pays, another costs: is the one that pays taken?",
        {"only": (1.0,)},
        {"only": 1.0},
        {"only": [_final(reward, "only") for reward in (0.0, -1.0, 1.0, 0.0)]},
        "the policy's loss: its sign, whether it reaches the policy's weights, and whether the action that was scored is the "
        "one that was taken",
        tells=("reversed",),
    )


def _action_by_observation() -> Rung:
    right = (2, 0, 3, 1)
    states = [f"signal {index}" for index in range(4)]
    return Rung(
        "action_by_observation",
        "actions",
        "Each of four observations asks for another action: is each answered?",
        {state: tuple(1.0 if index == place else 0.0 for index in range(4)) for place, state in enumerate(states)},
        dict.fromkeys(states, 0.25),
        {
            state: [_final(1.0 if action == right[place] else 0.0, state) for action in range(4)]
            for place, state in enumerate(states)
        },
        "what the policy is given to see, and rows of a batch that are matched with another row's advantage",
        steps=10_000,
    )


def _delayed_credit() -> Rung:
    length = 4
    observations = {"choice": (1.0, 0.0, 0.0)}
    moves: dict[str, list[list[Outcome]]] = {"choice": [_sure(0.0, "good 0"), _sure(0.2, "bad 0")]}
    for which, place, pay in (("good", 1, 1.0), ("bad", 2, 0.0)):
        for index in range(length):
            row = [0.0, 0.0, 0.0]
            row[place] = (index + 1) / length
            observations[f"{which} {index}"] = (row[0], row[1], row[2])
            last = index == length - 1
            step = _final(pay, f"{which} {index}") if last else _sure(0.0, f"{which} {index + 1}")
            moves[f"{which} {index}"] = [step, step]
    return Rung(
        "delayed_credit",
        "actions",
        "A little at once, or more after five steps: is the first action credited with what comes later?",
        *_in_two_worlds(observations, {"choice": 1.0}, moves),
        "how rewards reach earlier actions: returns, the bootstrap, lambda, and episodes that are cut",
        tells=("myopic",),
        steps=12_000,
    )


def _discounting() -> Rung:
    length = 20
    observations = {"choice": (1.0, 0.0), "soon": (-1.0, 0.0)}
    moves: dict[str, list[list[Outcome]]] = {
        "choice": [_sure(0.0, "soon"), _sure(0.0, "later 1")],
        "soon": [_final(1.0, "soon"), _final(1.0, "soon")],
    }
    for index in range(1, length):
        state = f"later {index}"
        observations[state] = (0.0, index / length)
        step = _final(1.1, state) if index == length - 1 else _sure(0.0, f"later {index + 1}")
        moves[state] = [step, step]
    return Rung(
        "discounting",
        "actions",
        "1 soon, or 1.1 after twenty steps: is what comes later worth less?",
        *_in_two_worlds(observations, {"choice": 1.0}, moves),
        "the discount: where gamma is applied, and to which steps",
        tells=("undiscounted",),
        steps=20_000,
    )


def _time_limit() -> Rung:
    return Rung(
        "time_limit",
        "actions",
        "One way is cut by a time limit in front of a reward: is the state behind the cut still worth something?",
        *_in_two_worlds(
            {
                "start": (1.0, 0.0, 0.0, 0.0),
                "way": (0.0, 1.0, 0.0, 0.0),
                "rich": (0.0, 0.0, 1.0, 0.0),
                "poor": (0.0, 0.0, 0.0, 1.0),
            },
            {"start": 0.4, "rich": 0.2, "poor": 0.4},
            {
                "start": [_sure(0.0, "way"), _final(0.7, "start")],
                "way": [_sure(0.0, "rich", "truncated"), _sure(0.0, "rich", "truncated")],
                "rich": [_final(1.0, "rich"), _final(1.0, "rich")],
                "poor": [_final(0.0, "poor"), _final(0.0, "poor")],
            },
        ),
        "the value of the last observation of a cut episode (not of the next episode's first one)",
        tells=("limit_is_end", "reset_after_limit"),
        steps=16_000,
    )


def _terminal() -> Rung:
    return Rung(
        "terminal",
        "actions",
        "0.6 and the end, or 1 one step later and the end: does an ended episode count for nothing more?",
        *_in_two_worlds(
            {"start": (1.0, 0.0), "second": (0.0, 1.0)},
            {"start": 1.0},
            {
                "start": [_sure(0.0, "second"), _final(0.6, "start")],
                "second": [_final(1.0, "second"), _final(1.0, "second")],
            },
        ),
        "the mask of ended episodes in the returns or in the TD target",
        tells=("end_ignored",),
        steps=12_000,
    )


def _agents() -> Rung:
    """Two agents in turn; both are paid together after the second one's move. What the first one earned is carried along."""
    observations: dict[str, tuple[float, ...]] = {}
    moves: dict[str, list[list[Outcome]]] = {}
    signals = {"up": 1.0, "down": -1.0}
    right = {"up": 0, "down": 1}
    earned = {"won": 1.0, "lost": 0.0}
    for signal, shown in signals.items():
        observations[f"first {signal}"] = (1.0, 0.0, shown, 0.0)
        moves[f"first {signal}"] = [
            [Outcome(0.5, 0.0 if action == right[signal] else 0.3, f"second {other} {result}") for other in signals]
            for action in range(2)
            for result in ["won" if action == right[signal] else "lost"]
        ]
        for result, owed in earned.items():
            state = f"second {signal} {result}"
            observations[state] = (0.0, 1.0, shown, owed)
            moves[state] = [_final(owed + (1.0 if action == right[signal] else 0.0), state) for action in range(2)]
    return Rung(
        "agents",
        "actions",
        "Two agents move in turn and are paid together at the end: does each learn its own part?",
        observations,
        {"first up": 0.5, "first down": 0.5},
        moves,
        "how a shared reward reaches the agent that moved earlier",
        tells=("myopic",),
        steps=16_000,
    )


def _stochastic() -> Rung:
    def arm(*pays: tuple[float, float]) -> list[Outcome]:
        return [Outcome(probability, reward, "only", "terminated") for probability, reward in pays]

    return Rung(
        "stochastic",
        "actions",
        "A sure 0.5, 4 once in twenty times, or 2 every other time: is the mean what counts?",
        {"only": (1.0,)},
        {"only": 1.0},
        {"only": [arm((1.0, 0.5)), arm((0.05, 4.0), (0.95, 0.0)), arm((0.5, 2.0), (0.5, 0.0))]},
        "rewards that are clipped or rescaled before the learner sees them, and learning rates too high to average",
        tells=("sign_of_reward",),
        steps=12_000,
    )


LADDER: tuple[Rung, ...] = (
    _constant_reward(),
    _reward_by_observation(),
    _delayed_reward(),
    _action_reward(),
    _action_by_observation(),
    _delayed_credit(),
    _discounting(),
    _time_limit(),
    _terminal(),
    _agents(),
    _stochastic(),
)
