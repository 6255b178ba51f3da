"""PPO on CartPole-v1 as one jitted program of JAX, environment and all: a peer of speed.py's `ppo_cartpole` and `ppo_plain`.

    pip install jax        (a peer of this benchmark alone; nothing else here uses it)

A rollout, its advantages and all gradient steps on it are one XLA program; iterations are scanned inside it in blocks, so that Python
is entered a few times in a whole run. The environment, the networks, the losses and Adam are those of the others. A time limit
counts as an end here, as in CleanRL's loop, which costs nothing; so an episode of 500 steps is valued a little too low.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-5
BLOCKS = 10
"""In so many calls the whole run is made: enough to see that it goes on."""


class Pace(NamedTuple):
    """The settings in which the zoo's and CleanRL's PPO differ."""

    envs: int
    steps: int
    epochs: int
    minibatch: int
    rate: float
    gamma: float
    decay: float
    entropy: float
    clip_value: float


ZOO = Pace(8, 32, 20, 256, 1e-3, 0.98, 0.8, 0.0, math.inf)
PLAIN = Pace(4, 128, 4, 128, 2.5e-4, 0.99, 0.95, 0.01, 0.2)
CLIP, VALUE, LIMIT, EPISODE = 0.2, 0.5, 0.5, 500


class World(NamedTuple):
    """[N, ...] of each instance: its state, and of its present episode the steps so far."""

    state: Any
    steps: Any


# ---------------------------------------------------------------------- CartPole


def begin(key: Any, count: int) -> World:
    return World(random.uniform(key, (count, 4), minval=-0.05, maxval=0.05), jnp.zeros(count, jnp.int32))


def step(world: World, action: Any, key: Any) -> tuple[World, Any]:
    """The next states, new episodes begun, and which episodes ended. Every step is worth 1."""
    x, speed, angle, turning = world.state.T
    force = jnp.where(action == 1, 10.0, -10.0)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    pushed = (force + 0.05 * turning**2 * sine) / 1.1
    turned = (9.8 * sine - cosine * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    moved = pushed - 0.05 * turned * cosine / 1.1
    state = jnp.stack([x + 0.02 * speed, speed + 0.02 * moved, angle + 0.02 * turning, turning + 0.02 * turned], axis=1)
    steps = world.steps + 1
    fell = (jnp.abs(state[:, 0]) > 2.4) | (jnp.abs(state[:, 2]) > 12 * 2 * math.pi / 360)
    over = fell | (steps >= EPISODE)
    fresh = begin(key, len(steps))
    return World(jnp.where(over[:, None], fresh.state, state), jnp.where(over, 0, steps)), over


# ---------------------------------------------------------------------- networks


def tower(key: Any, out: int, gain: float) -> list[tuple[Any, Any]]:
    sizes, gains = (4, 64, 64, out), (2**0.5, 2**0.5, gain)
    keys = random.split(key, 3)
    make = jax.nn.initializers.orthogonal
    return [
        (make(own)(k, (a, b)), jnp.zeros(b)) for k, a, b, own in zip(keys, sizes[:-1], sizes[1:], gains, strict=True)
    ]


def read(layers: list[tuple[Any, Any]], x: Any) -> Any:
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


# ---------------------------------------------------------------------- one iteration


def loss_of(towers: Any, pace: Pace, batch: tuple[Any, ...]) -> Any:
    seen, action, old_log_prob, old_value, advantage, target = batch
    log_probs = jax.nn.log_softmax(read(towers[0], seen))
    value = read(towers[1], seen)[:, 0]
    ratio = jnp.exp(jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0] - old_log_prob)
    weight = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    policy_loss = -jnp.minimum(weight * ratio, weight * jnp.clip(ratio, 1 - CLIP, 1 + CLIP)).mean()
    error = (value - target) ** 2
    if math.isfinite(pace.clip_value):
        held = old_value + jnp.clip(value - old_value, -pace.clip_value, pace.clip_value)
        error = 0.5 * jnp.maximum(error, (held - target) ** 2)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(1).mean()
    return policy_loss + VALUE * error.mean() - pace.entropy * entropy


def descend(pace: Pace, rate: Any, carried: tuple[Any, Any, Any, Any], batch: tuple[Any, ...]) -> tuple[Any, None]:
    towers, mean, square, count = carried
    gradient = jax.grad(loss_of)(towers, pace, batch)
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, LIMIT / (norm + 1e-6))
    count = count + 1
    gradient = jax.tree.map(lambda g: g * scale, gradient)
    mean = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, mean, gradient)
    square = jax.tree.map(lambda s, g: SECOND * s + (1 - SECOND) * g**2, square, gradient)
    stride, spread = rate / (1 - FIRST**count), jnp.sqrt(1 - SECOND**count)
    towers = jax.tree.map(lambda p, m, s: p - stride * m / (jnp.sqrt(s) / spread + EPSILON), towers, mean, square)
    return (towers, mean, square, count), None


def iterate(pace: Pace, total: int, carried: tuple[Any, ...], number: Any) -> tuple[tuple[Any, ...], Any]:
    """A rollout and its gradient steps; gives which steps ended an episode [T, N], and how long those episodes were."""
    learner, world, key = carried
    key, acting, shuffling = random.split(key, 3)

    def act(world: World, key: Any) -> tuple[World, Any]:
        choosing, beginning = random.split(key)
        logits = read(learner[0][0], world.state)
        action = random.categorical(choosing, logits)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        value = read(learner[0][1], world.state)[:, 0]
        following, over = step(world, action, beginning)
        return following, (world.state, action, log_prob, value, over, world.steps + 1)

    world, (seen, action, log_prob, value, over, length) = lax.scan(act, world, random.split(acting, pace.steps))

    def credit(carried: tuple[Any, Any], line: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
        later, following = carried
        own, ended = line
        goes_on = 1.0 - ended
        later = 1.0 + pace.gamma * following * goes_on - own + pace.gamma * pace.decay * goes_on * later
        return (later, own), later

    last = read(learner[0][1], world.state)[:, 0]
    _, advantage = lax.scan(credit, (jnp.zeros(pace.envs), last), (value, over.astype(jnp.float32)), reverse=True)

    rows = pace.steps * pace.envs
    flat = [c.reshape(rows, *c.shape[2:]) for c in (seen, action, log_prob, value, advantage, advantage + value)]
    rate = pace.rate * (1.0 - number / total)

    def epoch(learner: Any, key: Any) -> tuple[Any, None]:
        order = random.permutation(key, rows)
        shuffled = [c[order].reshape(rows // pace.minibatch, pace.minibatch, *c.shape[1:]) for c in flat]
        return lax.scan(partial(descend, pace, rate), learner, tuple(shuffled))

    learner, _ = lax.scan(epoch, learner, random.split(shuffling, pace.epochs))
    return (learner, world, key), (over, length)


def train(pace: Pace, total_steps: int, seed: int) -> tuple[float, float, list[tuple[int, float]]]:
    """CPU seconds of training, and of compiling before it; the step at which each episode ended, and its return."""
    per_iteration = pace.envs * pace.steps
    per_block = max(1, total_steps // per_iteration // BLOCKS)
    total = per_block * BLOCKS
    key, first, second, beginning = random.split(random.key(seed), 4)
    towers = (tower(first, 2, 0.01), tower(second, 1, 1.0))
    still = jax.tree.map(jnp.zeros_like, towers)
    carried = ((towers, still, still, jnp.zeros((), jnp.int32)), begin(beginning, pace.envs), key)

    began = time.process_time()
    block = jax.jit(lambda carried, numbers: lax.scan(partial(iterate, pace, total), carried, numbers))
    block = block.lower(carried, jnp.arange(per_block)).compile()
    compiled = time.process_time()
    episodes: list[tuple[int, float]] = []
    for number in range(BLOCKS):
        carried, (over, length) = block(carried, number * per_block + jnp.arange(per_block))
        over, length = (jax.device_get(part).reshape(-1, pace.envs) for part in (over, length))
        before = number * per_block * per_iteration
        episodes += [
            (before + (int(t) + 1) * pace.envs, float(length[t, n])) for t, n in zip(*over.nonzero(), strict=True)
        ]
    return time.process_time() - compiled, compiled - began, episodes
