"""A run's best policy plays, so that people can watch: `learnproof enjoy`.

One single environment, as a user would make it, stepped with the policy; drawn where it can be, written down in any case.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from ..envs.making import RegisteredEnvironment
from ..envs.team_making import TeamEnvironment
from ..errors import EnvironmentFault, UsageError
from ..policies.actor import Mode
from ..policies.alone import AgentPolicy
from ..policies.spaces import ObservationLayout
from ..seeding import episode_seeds, generator
from ..show.film import Film, open_film
from ..show.playback import Playback, PlayedEpisode, PlayedStep
from .loading import KeptPolicy, open_policy

Form = Literal["auto", "gif", "mp4", "text"]
FPS = 30.0
"""Where an environment does not say its own (metadata["render_fps"])."""
WIDEST_LABELLED = 4_096
"""Numbers of an observation that are kept for the table; an image is better drawn."""


def play(
    path: str | os.PathLike[str],
    *,
    episodes: int = 1,
    seed: int | None = None,
    mode: Mode | None = None,
    form: Form = "auto",
    out: str | os.PathLike[str] | None = None,
) -> Playback:
    """Play episodes with the best policy of a run; a film of them is written where it was asked for and can be had."""
    if episodes < 1:
        raise UsageError(f"episodes = {episodes}: play at least one.")
    place = _place(form, out)
    kept = open_policy(path, device="cpu")
    source = kept.source
    assert isinstance(source, (RegisteredEnvironment, TeamEnvironment))
    mode = mode or kept.settings.evaluation.mode
    root = kept.settings.seed if seed is None else seed
    seeds = episode_seeds(root, "enjoy command", episodes)
    env, film, reason = _stage(source, kept, form, place)
    try:
        noise = generator(root, "enjoy actions")
        played = [_episode(env, kept, one, mode, noise, film) for one in seeds]
    finally:
        env.close()
    if film is not None:
        film[0].save()
    return Playback(
        run=kept.folder.path,
        environment=kept.settings.env.id,
        algorithm=kept.settings.algorithm,
        best_at=kept.step,
        verdict=kept.verdict,
        mode=mode,
        metric=kept.metric,
        names=number_names(kept.actor.observations, _agents(kept)),
        episodes=played,
        film=film[1] if film is not None else None,
        not_drawn=reason,
    )


def number_names(layout: ObservationLayout, agents: Sequence[str] = ()) -> list[str]:
    """A label for each number of an observation as the environment gives it: obs[0], obs[1], or shelves[0], gauge; of a team's
    agents agent_0.obs[0], and so on."""
    names = []
    for leaf in layout.leaves:
        root = ".".join(str(key) for key in leaf.path) or "obs"
        shape = leaf.space.shape or ()
        own = [f"{root}[{','.join(map(str, index))}]" for index in np.ndindex(shape)] if shape else [root]
        names += [f"{agent}.{name}" for agent in agents for name in own] if agents else own
    return names[:WIDEST_LABELLED]


def _agents(kept: KeptPolicy) -> tuple[str, ...]:
    """Of a team whose agents decide one by one: an observation is then a batch, with a row for each."""
    return kept.actor.agents if isinstance(kept.actor, AgentPolicy) else ()


def _place(form: Form, out: str | os.PathLike[str] | None) -> Path | None:
    if out is None:
        return None
    place = Path(out)
    if form == "text":
        raise UsageError(f"--form text writes no file: leave --out {place} away, or ask for gif or mp4.")
    wanted = {"gif": ".gif", "mp4": ".mp4"}.get(form)
    if place.suffix.lower() not in ({wanted} if wanted else {".gif", ".mp4"}):
        raise UsageError(f"--out {place} should end in {wanted or '.gif or .mp4'}.")
    return place


def _stage(
    source: RegisteredEnvironment | TeamEnvironment, kept: KeptPolicy, form: Form, place: Path | None
) -> tuple[gym.Env[Any, Any], tuple[Film, Path] | None, str]:
    """The environment, the film that it is drawn on, and why there is none where one was to be expected."""
    plain = source.single()
    if form == "text":
        return plain, None, ""
    wants_film = form != "auto" or place is not None
    modes = list(plain.metadata.get("render_modes") or [])
    if "rgb_array" not in modes:
        if wants_film:
            raise UsageError(
                f"{source.name} cannot be drawn: its render_modes are {modes}, and a film needs rgb_array. `--form text` shows "
                "its steps as a table."
            )
        return plain, None, ""
    plain.close()
    path = place or kept.folder.path / ("enjoy.mp4" if form == "mp4" else "enjoy.gif")
    fps = float(plain.metadata.get("render_fps") or FPS)
    film = open_film(path, fps)
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # a film needs neither a window nor sound
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    try:
        drawn = source.single("rgb_array")
        drawn.reset(seed=0)
        drawn.render()
    except Exception as error:  # every renderer fails in its own way where its libraries or its display are missing
        reason = f"{source.name} could not be drawn ({str(error).strip() or type(error).__name__})"
        if isinstance(error, gym.error.DependencyNotInstalled):
            reason += ". The extra 'enjoy' draws Gymnasium's classic environments: pip install 'learnproof[enjoy]'"
        if wants_film:
            raise UsageError(f"{reason}. `--form text` shows its steps as a table.") from error
        return source.single(), None, reason
    return drawn, (film, path), ""


def _episode(
    env: gym.Env[Any, Any],
    kept: KeptPolicy,
    seed: int,
    mode: Mode,
    noise: np.random.Generator,
    film: tuple[Film, Path] | None,
) -> PlayedEpisode:
    actor, most = kept.actor, kept.settings.evaluation.max_episode_steps
    episode = PlayedEpisode(seed)
    observation, _ = env.reset(seed=seed)
    total = 0.0
    memory = None
    _draw(env, film, 0, total)
    for step in range(1, most + 1):
        if _agents(kept):
            acted = actor.act(observation, noise, mode, memory)
            action = acted.action
        else:
            batch = actor.observations.batch_of_one(observation)
            acted = actor.act(batch, noise, mode, memory)
            action = actor.actions.first(acted.action)
        memory = acted.memory
        numbers = np.concatenate([np.ravel(part) for part in actor.observations.parts(actor.seen(observation))])
        observation, reward, terminated, truncated, info = env.step(action)
        episode.steps.append(PlayedStep(numbers[:WIDEST_LABELLED].astype(np.float64), action, float(reward)))
        total += float(reward)
        _draw(env, film, step, total, last=terminated or truncated)
        if terminated or truncated:
            episode.ended = "terminated" if terminated else "truncated (time limit)"
            if kept.metric != "return" and kept.metric in info:
                episode.metric = float(info[kept.metric])
            return episode
    raise EnvironmentFault(
        f"An episode of {kept.settings.env.id} had not ended after {most} steps (evaluation.max_episode_steps of the run)."
    )


def _draw(
    env: gym.Env[Any, Any], film: tuple[Film, Path] | None, step: int, total: float, *, last: bool = False
) -> None:
    if film is not None:
        film[0].add(env.render, f"step {step}   return {total:.5g}", last=last)
