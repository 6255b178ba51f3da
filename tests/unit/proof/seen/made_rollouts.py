"""Rollouts as a watcher would have read them, made by hand of random episodes."""

import numpy as np
from made_losses import made_loss, made_view

from learnproof.proof.seen.losses import Loss, Regression
from learnproof.proof.seen.rollouts import Rollout

STEPS, COPIES, GAMMA, LAMBDA = 64, 4, 0.97, 0.9


def rollout(
    seed: int = 0, ends: float = 0.08, cuts: float = 0.06, copies: int = COPIES
) -> tuple[Rollout, np.ndarray, np.ndarray, np.ndarray]:
    """Random episodes that reset in the same step, with values of all states; [steps, copies] each."""
    rng = np.random.default_rng(seed)
    shape = (STEPS, copies)
    reward = rng.normal(1.0, 0.5, shape)
    terminated = rng.random(shape) < ends
    truncated = ~terminated & (rng.random(shape) < cuts)
    observation = rng.integers(2, 2**62, (STEPS + 1, copies), dtype=np.uint64)
    final = np.where(terminated | truncated, rng.integers(2, 2**62, shape, dtype=np.uint64), 0).astype(np.uint64)
    value = rng.normal(0.0, 3.0, (STEPS + 1, copies))
    final_value = np.where(final != 0, rng.normal(0.0, 3.0, shape), 0.0)
    known = {int(i): float(v) for i, v in zip(observation.ravel(), value.ravel(), strict=True)}
    known |= {int(i): float(v) for i, v in zip(final.ravel(), final_value.ravel(), strict=True) if i}
    times = np.repeat(np.arange(1, STEPS + 1), copies)
    made = Rollout(
        cycle=seed,
        time=times,
        stream=np.zeros(STEPS * copies, int),
        copy=np.tile(np.arange(copies), STEPS),
        observation=observation[:-1].ravel(),
        next_observation=observation[1:].ravel(),
        final_observation=final.ravel(),
        reward=reward.ravel(),
        terminated=terminated.ravel(),
        truncated=truncated.ravel(),
        resets=np.zeros(STEPS * copies, bool),
        action=None,
        silent=[("critic/1", known)],
        losses=[],
    )
    return made, reward, value, final_value


def returns(
    made: Rollout, reward, value, final_value, convention: str, scale: float = 1.0, gae_lambda: float = LAMBDA
) -> np.ndarray:
    """Of advantages with values, [steps, copies]; "sum goes on" masks the value at ends and not the sum."""
    copies = reward.shape[1]
    terminated, truncated = made.terminated.reshape(STEPS, copies), made.truncated.reshape(STEPS, copies)
    ended = terminated | truncated
    following = value[1:].copy()
    if convention == "no last value":
        following[-1] = 0.0
    if convention == "wrong last value":
        following[-1] = value[-2]
    advantage = np.zeros((STEPS + 1, copies))
    for t in range(STEPS - 1, -1, -1):
        stop = ended[t]
        if convention == "crossing":
            stop = np.zeros(copies, bool)
        if convention == "shifted":
            stop = ended[t - 1] if t else np.zeros(copies, bool)
        if convention == "early":
            stop = ended[t + 1] if t + 1 < STEPS else np.zeros(copies, bool)
        if convention == "cut crossing":
            stop = terminated[t]
        future = np.where(stop, 0.0, following[t])
        if convention in ("right", "no last value", "wrong last value", "sum goes on"):
            future = np.where(truncated[t], final_value[t], future)
        if convention == "ends valued":
            future = np.where(terminated[t] | truncated[t], final_value[t], future)
        if convention == "cut twice":
            future = np.where(truncated[t], 2 * final_value[t], future)
        if convention == "next start":
            future = np.where(terminated[t], 0.0, following[t])
        delta = scale * reward[t] + GAMMA * future - value[t]
        carried = advantage[t + 1] if convention == "sum goes on" else np.where(stop, 0.0, advantage[t + 1])
        advantage[t] = delta + GAMMA * gae_lambda * carried
    return (advantage[:-1] + value[:-1]).astype(np.float32).astype(np.float64)


def trained_on(made: Rollout, rows: np.ndarray, weight: np.ndarray, target: np.ndarray, value: np.ndarray) -> Rollout:
    """The rollout with one loss on all of its rows, in the order of the batch: a policy's weights, and a value that is drawn to targets."""
    names = made.observation[rows]
    arrays = {
        "p0.value": np.full(len(rows), -1.0, np.float32),
        "p0.gradient": (-weight / len(rows)).astype(np.float32),
        "p0.rows": names,
        "c0.rows": names,
    }
    loss = made_loss(arrays, made.cycle, log_probs=[{"kind": "gather", "shape": [len(rows)], "terms": [0]}])
    loss.__dict__["regressions"] = [Regression(value, target, None, names, None, "critic", 0, (1,), True)]
    made.losses = [loss]
    return made


def seen_on_policy(rollouts: list[Rollout], **about):
    losses: list[Loss] = [loss for made in rollouts for loss in made.losses]
    return made_view(
        losses,
        rollouts=rollouts,
        pooled_rollouts=rollouts,
        by_cycle={made.cycle: made.losses for made in rollouts},
        on_policy=True,
        on_policy_cycles={made.cycle for made in rollouts},
        **about,
    )
