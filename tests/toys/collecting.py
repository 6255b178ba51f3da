"""Finished episodes from a vector environment, as somebody who is not the engine would collect them."""

from __future__ import annotations

import numpy as np

from learnproof import EpisodeResult
from learnproof.training.acting import Choice


def acting_with(policy, seed):
    """A policy of its own, as somebody else would act with it."""
    noise = np.random.default_rng(seed)

    def act(observations):
        acted = policy.act(observations, noise, "sampled")
        return Choice(acted.action, acted.log_prob, acted.action)

    return act


def collect(env, act, count, *, seed=None, log_probs=True):
    """At least `count` episodes; `act(observations)` answers with .action, .drawn and .log_prob, as engine.act_many does."""
    observation, _ = env.reset(seed=seed)
    running = [[] for _ in range(env.num_envs)]
    finished = []
    while len(finished) < count:
        choice = act(observation)
        following, reward, terminated, truncated, infos = env.step(choice.action)
        for i, steps in enumerate(running):
            log_prob = choice.log_prob[i] if log_probs else None
            steps.append((observation[i].copy(), choice.drawn[i], reward[i], log_prob))
            if terminated[i] or truncated[i]:
                columns = [list(column) for column in zip(*steps, strict=True)]
                last = infos["final_obs"][i].copy()
                finished.append(
                    EpisodeResult(
                        *columns[: 4 if log_probs else 3],
                        terminated=bool(terminated[i]),
                        final_observation=last,
                        id=f"env {i}, episode {len(finished)}",
                        env=i,
                    )
                )
                steps.clear()
        observation = following
    return finished
