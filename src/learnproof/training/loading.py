"""A run's best policy, from its digest-checked checkpoint, with all that it needs to act.

    policy = load_policy("runs/cartpole")        # policy(observation) -> action, for one or for a batch
    kept = open_policy("runs/cartpole")          # the same policy, and where it comes from

What it acts on is the environment's own observation: flattening and normalisation are part of the policy. Where agents decide one by
one, it is the policy of an agent and acts on an agent's own observation, or on those of a whole team (policies/alone.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from ..config import Settings, parse_settings
from ..envs.agents import agent_rows
from ..envs.making import EnvironmentSource, GivenEnvironment
from ..envs.team_making import environment_source
from ..errors import RunFolderError, UnknownEnvironment, UsageError
from ..policies.actor import NetworkActor
from ..policies.alone import AgentPolicy
from ..runs.folder import RunFolder
from ..supervising.conclusion import is_watched
from .assembly import environment_facts, make_actor
from .episode_saving import is_engine
from .saving import load_policy_checkpoint

Path_ = str | os.PathLike[str]


@dataclass(frozen=True)
class KeptPolicy:
    """The best policy of a run, and where it comes from."""

    folder: RunFolder
    settings: Settings
    source: EnvironmentSource
    actor: NetworkActor
    metric: str
    """What the environment measures performance by."""
    step: int
    """Environment steps after which it was the best."""
    score: float | None
    """Of the evaluation that made it the best; None where there was none."""
    digest: str
    """sha256 of its checkpoint."""
    verdict: str | None
    """On this very policy: proven, broken or unproven; None where it was not judged yet."""


def load_policy(path: Path_, env: VectorEnv[Any, Any, Any] | None = None, *, device: str | None = None) -> NetworkActor:
    """The best policy of a run, with its normalisation: `policy(observation)` gives the action.

    One observation gives one action, a batch of observations a batch of actions. `env` is needed where the run was trained on
    a vector environment that was given as an object: only its spaces are read. `device` moves a policy that was trained
    elsewhere. A recurrent policy takes each call for the next step of the same episodes: call `policy.reset()` where new ones begin,
    or `policy.reset(ended)` for some of a batch.
    """
    return open_policy(path, env, device=device).actor


def open_policy(path: Path_, env: VectorEnv[Any, Any, Any] | None = None, *, device: str | None = None) -> KeptPolicy:
    folder = RunFolder.open(Path(path))
    if is_watched(folder):
        raise RunFolderError(
            f"{folder.path} is a watched script's run: its policy is the script's own and is not kept here. Policies are "
            "loaded from runs of `learnproof train`."
        )
    settings = read_settings(folder)
    if device is not None:
        settings = settings.replace({"device": device})
    best = folder.best.newest()
    if best is None:
        raise RunFolderError(f"{folder.path} has no best/ policy. Go on with it: {resume_command(folder)}")
    source = _source(settings, env)
    made = env if env is not None else source.evaluation(1)
    assert made is not None
    actor = make_actor(settings, made)
    metric = environment_facts(made).metric
    if source.ours:
        made.close()
    load_policy_checkpoint(actor, best)
    teams = agent_rows(made)
    if teams is not None:
        actor = AgentPolicy(actor, teams.agents)
    state = best.state()
    return KeptPolicy(
        folder=folder,
        settings=settings,
        source=source,
        actor=actor,
        metric=metric,
        step=int(state["step"]),
        score=state["score"],
        digest=best.digest,
        verdict=_verdict_on(folder, best.digest),
    )


def read_settings(folder: RunFolder) -> Settings:
    if is_engine(folder):
        raise UsageError(
            f"{folder.path} holds what a TrainingEngine learnt from given episodes: go on with it, or act with its policy, by "
            f"learnproof.TrainingEngine.load({str(folder.path)!r}); judge it by learnproof.verify."
        )
    return parse_settings(tomllib.loads(folder.read_config()), str(folder.config))


def resume_command(folder: RunFolder) -> str:
    return f"learnproof resume {shlex.quote(str(folder.path))}"


def _source(settings: Settings, env: VectorEnv[Any, Any, Any] | None) -> EnvironmentSource:
    if env is not None:
        return GivenEnvironment(env, env, settings.env.id)
    try:
        return environment_source(settings.env)
    except UnknownEnvironment as error:
        raise UnknownEnvironment(
            f"{error} Where the run was trained on a vector environment that was given as an object, give one again: "
            "learnproof.load_policy(path, env)."
        ) from None


def _verdict_on(folder: RunFolder, digest: str) -> str | None:
    """The word of verdict.json, where that was about these very bytes: training may have gone on since."""
    try:
        body = json.loads(folder.verdict.read_bytes())
        judged, word = body["digests"], str(body["verdict"])
        evidence = hashlib.sha256(folder.evidence.read_bytes()).hexdigest()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return word if judged.get("best") == digest and judged.get("evidence.jsonl") == evidence else None
