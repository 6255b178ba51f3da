"""A curriculum: training begins on easier forms of a task and goes on to the task itself.

    [[curriculum.stages]]                      [[curriculum.stages]]                     the full task:
    kwargs = { arrival_probability = 0.1 }     kwargs = { arrival_probability = 0.2 }    env.kwargs alone
    until_score = 0.5                          until_fraction = 0.4

What is easier is said by arguments of the environment, or by a level between 0 and 1 that its `set_difficulty(level)` takes from the
next reset on (1 = the full task). Only what is trained on changes. Evaluations, the best policy and the proof are of the full task,
always. When a stage begins, every instance begins a new episode; what was cut off counts for nothing.

In Python a function may decide instead, from what it is shown and nothing else, so that a resumed run decides the same:

    def harder(look: CurriculumLook):            # asked before training, and after each iteration
        if look.stage == 0:
            return {"goal_position": 0.1}        # arguments over env.kwargs; or a number, for set_difficulty
        return {} if look.fraction > 0.3 else None    # {} = the full task, None = stay

    learnproof.train("learnproof/MountainCar-v0", curriculum=harder)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from ..config import Settings
from ..envs.making import AnyVectorEnv, EnvironmentSource
from ..envs.team_making import environment_source
from ..errors import CheckpointMismatch, SettingsError, UsageError
from ..evidence import StageBegan
from .rollout import FinishedEpisode

Argument = int | float | str | bool
FULL_TASK = 1.0
"""The level of set_difficulty that is the task itself."""


@dataclass(frozen=True)
class CurriculumLook:
    """What is known when it is decided whether another stage begins."""

    stage: int
    """The present one; 1 for the first, 0 before training."""
    step: int
    """Environment steps so far."""
    steps_in_stage: int
    fraction: float
    """Of the step budget."""
    scores: tuple[float, ...]
    """Of this stage's newest training episodes, in the run's metric: at most curriculum.episodes of them, oldest first."""
    evaluation: float | None
    """The newest score on the full task since this stage began."""


CurriculumFunction = Callable[[CurriculumLook], Mapping[str, Argument] | float | None]


@dataclass(frozen=True)
class Stage:
    number: int
    full: bool
    """The task itself."""
    kwargs: dict[str, Argument] = field(default_factory=dict)
    difficulty: float | None = None

    def words(self) -> str:
        if self.full:
            return "the full task"
        said = [f"{name} = {value}" for name, value in self.kwargs.items()]
        return ", ".join(said + ([] if self.difficulty is None else [f"difficulty {self.difficulty:g}"]))


@dataclass(frozen=True)
class Change:
    """A stage that begins, and why."""

    stage: Stage
    reason: str


def open_curriculum(
    settings: Settings, source: EnvironmentSource, function: CurriculumFunction | None
) -> Curriculum | None:
    if function is None and not settings.curriculum.stages:
        return None
    if function is not None and settings.curriculum.stages:
        raise UsageError("A curriculum is given as a function and in curriculum.stages: leave one of them out.")
    return Curriculum(settings, source, function)


class Curriculum:
    """`state` and `load` carry it over a kill."""

    def __init__(self, settings: Settings, source: EnvironmentSource, function: CurriculumFunction | None) -> None:
        self.settings = settings
        self.source = source
        self.function = function
        planned = settings.curriculum.stages
        self.stages = [Stage(i, False, dict(one.kwargs), one.difficulty) for i, one in enumerate(planned, start=1)]
        self.stage = Stage(0, False)
        self.began_at = 0
        self.scores: deque[float] = deque(maxlen=settings.curriculum.episodes)
        self.evaluation: float | None = None
        for stage in self.stages:
            self._check(stage)
        if function is None:
            self.stages.append(Stage(len(planned) + 1, True))
            self.stage = self.stages[0]
        else:
            self.stage = self._asked(0) or Stage(1, True)

    @property
    def count(self) -> int | None:
        """Stages in all, the full task included; None where a function decides."""
        return len(self.stages) if self.function is None else None

    def environment(self) -> AnyVectorEnv:
        """What is trained on in the present stage."""
        return self._make(self.stage, self.settings.env.n_envs)

    def event(self, step: int, reason: str) -> StageBegan:
        """The present stage as evidence."""
        s = self.stage
        said: dict[str, Any] = {"kwargs": dict(s.kwargs), "difficulty": s.difficulty, "reason": reason}
        return StageBegan(step=step, stage=s.number, stages=self.count, full=s.full, **said)

    def episode(self, episode: FinishedEpisode, metric: str) -> None:
        """A training episode that has ended; one that does not tell the run's metric says nothing."""
        score = episode.return_ if metric == "return" else episode.metrics.get(metric)
        if score is not None:
            self.scores.append(score)

    def evaluated(self, score: float) -> None:
        self.evaluation = score

    def check_measure(self, can_evaluate: bool) -> None:
        """A score that nobody measures would never be reached."""
        if self.settings.curriculum.measure == "evaluation" and not (
            self.settings.evaluation.every_steps and can_evaluate
        ):
            raise SettingsError(
                "curriculum.measure = 'evaluation' waits for evaluations, and there are none: set evaluation.every_steps above 0 "
                "(a vector environment needs a second one as evaluation_env), or use 'training'."
            )

    def advance(self, step: int) -> Change | None:
        """The stage that begins now, where one does."""
        change = self._planned(step) if self.function is None else self._function_says(step)
        if change is not None:
            self.stage, self.began_at, self.evaluation = change.stage, step, None
            self.scores.clear()
        return change

    def _planned(self, step: int) -> Change | None:
        if self.stage.full:
            return None
        plan, rules = self.settings.curriculum.stages[self.stage.number - 1], self.settings.curriculum
        following = self.stages[self.stage.number]
        if plan.until_score is not None:
            if rules.measure == "evaluation":
                reached, of = self.evaluation, "an evaluation on the full task"
            else:
                enough = len(self.scores) == rules.episodes
                reached, of = fmean(self.scores) if enough else None, f"the mean of {rules.episodes} training episodes"
            if reached is not None and reached >= plan.until_score:
                return Change(following, f"{of} reached {reached:.6g} (until_score = {plan.until_score:g})")
        if plan.until_fraction is not None and step >= plan.until_fraction * self.settings.steps:
            return Change(following, f"{plan.until_fraction:.0%} of the steps were taken (until_fraction)")
        return None

    def _function_says(self, step: int) -> Change | None:
        stage = self._asked(step)
        if stage is None or (stage.kwargs, stage.difficulty) == (self.stage.kwargs, self.stage.difficulty):
            return None
        return Change(stage, "the function that was given says so")

    def _asked(self, step: int) -> Stage | None:
        assert self.function is not None
        number = self.stage.number
        fraction = step / self.settings.steps
        look = CurriculumLook(number, step, step - self.began_at, fraction, tuple(self.scores), self.evaluation)
        answer = self.function(look)
        if answer is None:
            return None
        if isinstance(answer, Mapping):
            stage = Stage(number + 1, not answer, dict(answer))
        elif isinstance(answer, (int, float)) and 0 <= answer <= FULL_TASK:
            stage = Stage(number + 1, answer == FULL_TASK, {}, float(answer))
        else:
            raise UsageError(
                f"The curriculum's function answered {answer!r:.80}. It gives arguments of the environment as a dict ({{}} = the full "
                "task), a level from 0 to 1 for set_difficulty, or None to stay."
            )
        self._check(stage)
        return stage

    # ------------------------------------------------------------------ environments

    def _make(self, stage: Stage, n_envs: int) -> AnyVectorEnv:
        if not self.source.ours:
            env = self.source.training(n_envs)
            tell_difficulty(env, FULL_TASK if stage.difficulty is None else stage.difficulty, self.source.name)
            return env
        if stage.kwargs:
            eased = self.settings.env.model_copy(update={"kwargs": {**self.settings.env.kwargs, **stage.kwargs}})
            try:
                env = environment_source(eased).training(n_envs)
            except SettingsError as error:
                raise SettingsError(f"Stage {stage.number} of the curriculum: {error}") from None
        else:
            env = self.source.training(n_envs)
        if stage.difficulty is not None:
            tell_difficulty(env, stage.difficulty, self.source.name)
        return env

    def _check(self, stage: Stage) -> None:
        """One network fits every stage: what is seen, what can be done and who is there must not change."""
        if not self.source.ours:
            if stage.kwargs:
                raise UsageError(
                    f"Stage {stage.number} of the curriculum has arguments ({stage.words()}), and a vector environment that was given is made "
                    "already. Name it by its id, or give it a method set_difficulty(level) and say a difficulty."
                )
            return
        full, eased = self.source.training(1), self._make(stage, 1)
        try:
            for what, before, after in (
                ("what is observed", full.single_observation_space, eased.single_observation_space),
                ("what can be done", full.single_action_space, eased.single_action_space),
                ("the number of agents", full.num_envs, eased.num_envs),
            ):
                if before != after:
                    raise SettingsError(
                        f"Stage {stage.number} of the curriculum ({stage.words()}) changes {what}: {after} instead of {before}. One network must "
                        "fit every stage, so choose arguments that leave the spaces as they are."
                    )
        finally:
            full.close()
            eased.close()

    # ------------------------------------------------------------------ over a kill

    def state(self) -> dict[str, Any]:
        return {
            "stage": asdict(self.stage),
            "began_at": self.began_at,
            "scores": list(self.scores),
            "evaluation": self.evaluation,
            "by_function": self.function is not None,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.stage = Stage(**state["stage"])
        self.began_at = int(state["began_at"])
        self.scores = deque(state["scores"], maxlen=self.settings.curriculum.episodes)
        self.evaluation = state["evaluation"]


def require_same_kind(state: dict[str, Any] | None, curriculum: Curriculum | None) -> None:
    """A run goes on with the curriculum that it began with."""
    by_function = state is not None and bool(state["by_function"])
    if by_function and (curriculum is None or curriculum.function is None):
        raise UsageError(
            "This run has a curriculum that a function decides, which no file can hold. Give it again: "
            "learnproof.resume(path, curriculum=function)."
        )
    if not by_function and curriculum is not None and curriculum.function is not None:
        raise CheckpointMismatch("A curriculum's function was given, and this run was begun without one: leave it out.")


def tell_difficulty(env: AnyVectorEnv, level: float, name: str) -> None:
    """Each instance is told through set_difficulty(level); an environment that has no such method is refused."""
    inner: Any = env.unwrapped
    if callable(getattr(inner, "set_difficulty", None)):
        inner.set_difficulty(level)
        return
    try:
        if not isinstance(inner, (SyncVectorEnv, AsyncVectorEnv)):
            raise AttributeError
        inner.call("set_difficulty", level)
    except AttributeError:
        raise SettingsError(
            f"The curriculum says difficulty {level:g}, and {name} has no method set_difficulty(level). Give it one (from 0 to 1 = the full "
            "task, in force from the next reset on), or say what is easier by arguments of the environment (kwargs)."
        ) from None
