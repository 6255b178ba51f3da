"""Double DQN with n-step returns and prioritised replay on a small landing task."""

import argparse
import copy
import time
from collections import deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FAULTS = {
    "lerp": ["targets", "broken", "soft update writes lerp instead of lerp_, so the target stays at its first weights"],
    "window": ["returns", "broken", "n-step window is not emptied at the end of an episode: returns cross episodes"],
    "no_zero": ["weights", "broken", "gradients are never cleared and pile up over all updates"],
    "mean_huber": ["shapes", "broken", "huber loss is averaged before the importance weights are multiplied in"],
    "best_alias": ["rates", "broken", "best weights kept as state_dict() without a copy, so restoring does nothing"],
    "any_speed": ["goal", "not proven", "touchdown speed tested with its sign, so that every crash counts as landing"],
}
HEALTHY = {
    "": "plain",
    "ema": "a moving average of the weights is kept beside the model and evaluated at the end",
    "random_features": "the first layer is wide, random and frozen on purpose",
}


class Lander(gym.Env):
    # touch down slowly on the pad; actions: nothing, push left, push right, main engine
    action_space = gym.spaces.Discrete(4)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    signed_speed = False
    engines = np.array([(0.0, 0.0), (-0.015, 0.0), (0.015, 0.0), (0.0, 0.03)])

    def _look(self):
        self.potential = -np.abs(self.pos).sum() - 2.0 * np.abs(self.vel).sum()
        return np.concatenate([self.pos, 5.0 * self.vel]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.np_random.uniform((-0.7, 0.8), (0.7, 1.2))
        self.vel = self.np_random.uniform(-0.04, 0.04, 2)
        return self._look(), {}

    def step(self, action):
        self.vel = self.vel + self.engines[action] + (self.np_random.normal(0.0, 0.002), -0.012)
        self.pos = np.maximum(self.pos + self.vel, (-np.inf, 0.0))
        before, obs = self.potential, self._look()
        reward = self.potential - before - 0.03
        down, lost = bool(self.pos[1] <= 0.0), bool(abs(self.pos[0]) > 1.5 or self.pos[1] > 1.8)
        if down or lost:
            speed = self.vel if self.signed_speed else np.abs(self.vel)
            reward += 2.0 if down and (speed < 0.08).all() and abs(self.pos[0]) < 0.3 else -2.0
        return obs, float(reward), down or lost, False, {"speed": abs(self.vel[1])}


@dataclass
class Config:
    fault: str
    variant: str
    capacity: int = 20_000
    batch: int = 64
    n_step: int = 3
    gamma: float = 0.99
    lr: float = 5e-4
    tau: float = 0.01
    alpha: float = 0.6
    beta: float = 0.4


class PrioritisedReplay:
    def __init__(self, cfg, n_obs, rng):
        self.cfg, self.rng, self.at, self.size, self.top = cfg, rng, 0, 0, 1.0
        self.obs, self.next_obs = np.zeros((2, cfg.capacity, n_obs), np.float32)
        self.ret, self.discount, self.prio = np.zeros((3, cfg.capacity), np.float32)
        self.action, self.window = np.zeros(cfg.capacity, np.int64), deque()

    def _emit(self, next_obs, terminated):
        i = self.at  # the oldest step of the window goes in, with the return over the whole of it
        self.obs[i], self.action[i], self.next_obs[i] = *self.window[0][:2], next_obs
        self.ret[i] = sum(self.cfg.gamma**k * r for k, (_, _, r) in enumerate(self.window))
        self.discount[i] = 0.0 if terminated else self.cfg.gamma ** len(self.window)
        self.prio[i], self.at, self.size = self.top, (i + 1) % len(self.prio), min(self.size + 1, len(self.prio))
        self.window.popleft()

    def add(self, obs, action, reward, next_obs, terminated, truncated):
        self.window.append((obs, action, reward))
        if len(self.window) == self.cfg.n_step:
            self._emit(next_obs, terminated)
        while self.window and (terminated or truncated) and self.cfg.fault != "window":
            self._emit(next_obs, terminated)

    def sample(self, beta):
        cum = np.cumsum(self.prio[: self.size].astype(np.float64) ** self.cfg.alpha)
        idx = np.searchsorted(cum, self.rng.random(self.cfg.batch) * cum[-1]).clip(max=self.size - 1)
        weight = (self.size * self.prio[idx] ** self.cfg.alpha / cum[-1]) ** -beta
        fields = (self.obs, self.action, self.ret, self.next_obs, self.discount)
        return idx, [torch.as_tensor(f[idx]) for f in fields], torch.as_tensor(weight / weight.max()).float()

    def update(self, idx, errors):
        self.prio[idx] = np.abs(errors) + 1e-3
        self.top = max(self.top, float(self.prio[idx].max()))


class Learner:
    def __init__(self, cfg, n_obs, n_act):
        self.cfg = cfg
        fixed = cfg.variant == "random_features"
        width = 256 if fixed else 64
        body = [nn.Linear(n_obs, width), nn.ReLU(), nn.Linear(width, 64), nn.ReLU()]
        self.online = nn.Sequential(*body, nn.Linear(64, n_act))
        self.online[0].requires_grad_(not fixed)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.average = copy.deepcopy(self.target)
        self.optimizer = torch.optim.Adam([p for p in self.online.parameters() if p.requires_grad], lr=cfg.lr)

    def learn(self, batch, weights):
        obs, action, ret, next_obs, discount = batch
        with torch.no_grad():
            best = self.online(next_obs).argmax(1, keepdim=True)
            y = ret + discount * self.target(next_obs).gather(1, best).squeeze(1)
        q = self.online(obs).gather(1, action.unsqueeze(1)).squeeze(1)
        reduction = "mean" if self.cfg.fault == "mean_huber" else "none"
        loss = (weights * nn.functional.huber_loss(q, y, reduction=reduction)).mean()
        if self.cfg.fault != "no_zero":
            self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        self.soft_update(self.target, self.cfg.tau)
        if self.cfg.variant == "ema":
            self.soft_update(self.average, 0.002)
        return loss.item(), (y - q).detach().numpy()

    @torch.no_grad()
    def soft_update(self, net, tau):
        for t, p in zip(net.parameters(), self.online.parameters(), strict=True):
            t.lerp(p, tau) if self.cfg.fault == "lerp" else t.lerp_(p, tau)


@torch.no_grad()
def evaluate(env, net, episodes):
    total = 0.0
    for _ in range(episodes):
        (obs, _), over = env.reset(), False
        while not over:
            obs, r, terminated, truncated, _ = env.step(int(net(torch.as_tensor(obs)).argmax()))
            total, over = total + r, terminated or truncated
    return total / episodes


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--steps", type=int, default=10_000)
    p.add_argument("--fault", default="", choices=["", *FAULTS])
    p.add_argument("--variant", default="", choices=list(HEALTHY))
    args = p.parse_args()
    torch.manual_seed(args.seed)
    cfg, rng = Config(args.fault, args.variant), np.random.default_rng(args.seed)
    Lander.signed_speed = cfg.fault == "any_speed"
    env, test_env = (gym.wrappers.TimeLimit(Lander(), 80) for _ in range(2))
    learner, replay = Learner(cfg, n_obs=4, n_act=4), PrioritisedReplay(cfg, n_obs=4, rng=rng)
    best_score, best_weights, loss = -np.inf, copy.deepcopy(learner.online.state_dict()), float("nan")
    scores, speeds, score, shown, start = [], [], 0.0, time.time(), time.process_time()
    test_env.reset(seed=args.seed + 1000)
    obs, _ = env.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        epsilon = max(0.05, 1.0 - step / (0.4 * args.steps))
        action = int(rng.integers(4) if rng.random() < epsilon else learner.online(torch.as_tensor(obs)).argmax())
        next_obs, reward, terminated, truncated, info = env.step(action)
        replay.add(obs, action, reward, next_obs, terminated, truncated)
        obs, score = next_obs, score + reward
        if terminated or truncated:
            scores.append(score)
            speeds.append(info["speed"])
            (obs, _), score = env.reset(), 0.0
        if replay.size >= 500:
            idx, batch, weights = replay.sample(cfg.beta + (1.0 - cfg.beta) * step / args.steps)
            loss, errors = learner.learn(batch, weights)
            replay.update(idx, errors)
        if step % 500 == 0 and (result := evaluate(test_env, learner.online, 5)) > best_score:
            best_score, best_weights = result, learner.online.state_dict()
            if cfg.fault != "best_alias":
                best_weights = copy.deepcopy(best_weights)
        if time.time() - shown > 2.0 and scores:
            shown, recent, speed = time.time(), np.mean(scores[-50:]), np.mean(speeds[-50:])
            print(f"step {step:6d}  return {recent:+.3f}  last speed {speed:.3f}  loss {loss:.4f}", flush=True)
    learner.online.load_state_dict(best_weights)
    if cfg.variant == "ema":
        print(f"averaged weights {evaluate(test_env, learner.average, 20):+.3f}")
    n = max(1, len(scores) // 10)
    print(f"episodes {len(scores)}  first tenth {np.mean(scores[:n]):+.3f}  last tenth {np.mean(scores[-n:]):+.3f}")
    restored = evaluate(test_env, learner.online, 20)
    print(f"best evaluation {best_score:+.3f}  restored {restored:+.3f}  cpu {time.process_time() - start:.1f}s")


if __name__ == "__main__":
    main()
