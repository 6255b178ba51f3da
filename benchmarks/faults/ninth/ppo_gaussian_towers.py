"""PPO for a skiff that holds station at a buoy: two thrusters, diagonal Gaussian, separate actor and critic."""

import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from torch import nn
from torch.distributions import Normal

FAULTS = {
    "log_std_left_out": [
        "weights",
        "broken",
        "the actor's optimizer is given the parameters of its tower only: log_std gets gradients but never moves",
    ],
    "bootstrap_after_reset": [
        "returns",
        "broken",
        "at a time limit the value of the next stored observation is used, which already belongs to a new episode",
    ],
    "time_limit_terminal": [
        "returns",
        "broken",
        "an episode that ran out of time is treated like one that ran aground: nothing is bootstrapped",
    ],
    "clipped_stored": [
        "shapes",
        "broken",
        "the action clipped for the thrusters is stored, with the log-prob of the action before clipping",
    ],
    "optimistic_clip": [
        "signs",
        "broken",
        "the larger of the plain and the clipped surrogate is taken, so that the clip no longer restrains anything",
    ],
    "wrong_tower_clipped": [
        "rates",
        "broken",
        "a copied line clips the actor's gradients again before the critic's step, the critic's are never clipped",
    ],
    "one_axis_enough": [
        "goal",
        "not proven",
        "the distance in the reward is taken along the first axis only: being level with the buoy is paid in full",
    ],
}
HEALTHY = {
    "": "plain: clipped surrogate, actor stopped early by its KL, both rates annealed, time limits bootstrapped",
    "popart": "the critic speaks in normalised returns and its last layer is rescaled whenever their statistics move",
    "slow_start": "actor warmed up from rate 0, accumulation over two halves, AdamW, averaged actor kept for the end",
}


class Skiff(gym.Env):
    """Position, velocity and buoy in metres; the basin is a square of 100 m and its walls end the episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float64)

    def __init__(self, fault=""):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.np_random.uniform(-35, 35, 2)
        self.vel = np.zeros(2)
        self.buoy = self.np_random.uniform(-30, 30, 2)
        return self.observe(), {}

    def observe(self):
        return np.concatenate([self.pos, self.vel, self.buoy])

    def step(self, action):
        self.vel = 0.85 * self.vel + action + self.np_random.normal(0, 0.7, 2)
        self.pos = self.pos + self.vel
        offset = np.abs(self.pos - self.buoy)
        away = offset[0] if self.fault == "one_axis_enough" else np.hypot(*offset)
        aground = bool(np.abs(self.pos).max() > 50)
        reward = -10.0 if aground else 1.0 - float(away) / 20
        return self.observe(), reward, aground, False, {}


class RunningMoments:
    def __init__(self, shape=()):
        self.mean, self.var, self.n = np.zeros(shape), np.ones(shape), 1e-4

    def push(self, batch):
        n, mean, var = len(batch), batch.mean(0), batch.var(0)
        shift, total = mean - self.mean, self.n + n
        self.mean = self.mean + shift * n / total
        self.var = (self.var * self.n + var * n + shift**2 * self.n * n / total) / total
        self.n = total

    @property
    def std(self):
        return np.sqrt(self.var + 1e-8)


def tower(sizes, last_gain):
    layers = []
    for i, (n_in, n_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        last = i == len(sizes) - 2
        linear = nn.Linear(n_in, n_out)
        nn.init.orthogonal_(linear.weight, last_gain if last else 2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.Tanh()]
    return nn.Sequential(*layers)


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=64):
        super().__init__()
        self.mu = tower([obs_dim, hidden, hidden, act_dim], 0.01)
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.3))

    def forward(self, obs):
        return Normal(self.mu(obs), self.log_std.exp())


class Critic(nn.Module):
    """A value tower; with `popart` it predicts normalised returns and keeps its outputs when their scale moves."""

    def __init__(self, obs_dim, hidden=64, popart=False):
        super().__init__()
        self.v = tower([obs_dim, hidden, hidden, 1], 1.0)
        self.moments = RunningMoments() if popart else None
        self.shift, self.scale = 0.0, 1.0

    def forward(self, obs):
        return self.v(obs).squeeze(-1)

    def value(self, obs):
        return self(obs) * self.scale + self.shift

    @torch.no_grad()
    def rescale(self, returns):
        self.moments.push(returns.numpy())
        shift, scale = float(self.moments.mean), float(self.moments.std)
        head = self.v[-1]
        head.weight.mul_(self.scale / scale)
        head.bias.copy_((head.bias * self.scale + self.shift - shift) / scale)
        self.shift, self.scale = shift, scale

    def normalised(self, returns):
        return (returns - self.shift) / self.scale


class Fleet:
    """Sixteen skiffs side by side. Observations are normalised with running moments before anyone sees them."""

    def __init__(self, n, seed, limit, fault):
        self.envs = [TimeLimit(Skiff(fault), limit) for _ in range(n)]
        self.moments = RunningMoments(self.envs[0].observation_space.shape)
        raw = np.stack([env.reset(seed=1000 * seed + i)[0] for i, env in enumerate(self.envs)])
        self.running, self.returns = np.zeros(n), []
        self.moments.push(raw)
        self.obs = self.normalise(raw)

    def normalise(self, raw):
        scaled = np.clip((raw - self.moments.mean) / self.moments.std, -5, 5)
        return torch.as_tensor(scaled, dtype=torch.float32)

    def step(self, actions):
        rewards, aground, late = (np.zeros(len(self.envs), dtype=np.float32) for _ in range(3))
        raw, last_seen = [], {}
        for i, env in enumerate(self.envs):
            obs, rewards[i], terminated, truncated, _ = env.step(actions[i])
            self.running[i] += rewards[i]
            aground[i], late[i] = terminated, truncated and not terminated
            if terminated or truncated:
                last_seen[i] = self.normalise(obs)
                self.returns.append(self.running[i])
                self.running[i] = 0.0
                obs, _ = env.reset()
            raw.append(obs)
        raw = np.stack(raw)
        self.moments.push(raw)
        self.obs = self.normalise(raw)
        return torch.from_numpy(rewards), torch.from_numpy(aground), torch.from_numpy(late), last_seen


@torch.no_grad()
def sail(fleet, actor, critic, horizon, gamma, lam, fault):
    rows = {name: [] for name in ("obs", "act", "logp", "rew", "aground", "late", "next_val", "val")}
    for _ in range(horizon):
        obs = fleet.obs
        dist = actor(obs)
        act = dist.sample()
        logp = dist.log_prob(act).sum(-1)
        thrust = act.clamp(-1.0, 1.0)
        if fault == "clipped_stored":
            act = thrust
        rew, aground, late, last_seen = fleet.step(thrust.numpy().astype(np.float64))
        next_val = critic.value(fleet.obs)
        if fault != "bootstrap_after_reset":
            for i, final_obs in last_seen.items():
                next_val[i] = critic.value(final_obs)
        row = (obs, act, logp, rew, aground, late, next_val, critic.value(obs))
        for name, item in zip(rows, row, strict=True):
            rows[name].append(item)
    data = {name: torch.stack(items) for name, items in rows.items()}

    over = torch.maximum(data["aground"], data["late"])
    no_future = over if fault == "time_limit_terminal" else data["aground"]
    deltas = data["rew"] + gamma * (1 - no_future) * data["next_val"] - data["val"]
    adv = torch.zeros_like(deltas)
    trace = torch.zeros(deltas.shape[1])
    for t in reversed(range(horizon)):
        trace = deltas[t] + gamma * lam * (1 - over[t]) * trace
        adv[t] = trace
    data["adv"], data["ret"] = adv, adv + data["val"]
    batch = {name: data[name].flatten(0, 1) for name in ("obs", "act", "logp", "adv", "ret")}
    batch["adv"] = (batch["adv"] - batch["adv"].mean()) / (batch["adv"].std() + 1e-8)
    return batch


def surrogate_loss(actor, batch, clip, entropy_weight, fault):
    dist = actor(batch["obs"])
    log_ratio = dist.log_prob(batch["act"]).sum(-1) - batch["logp"]
    ratio = log_ratio.exp()
    plain, clipped = ratio * batch["adv"], ratio.clamp(1 - clip, 1 + clip) * batch["adv"]
    kept = torch.max(plain, clipped) if fault == "optimistic_clip" else torch.min(plain, clipped)
    kl = (ratio - 1 - log_ratio).mean().item()
    return -kept.mean() - entropy_weight * dist.entropy().sum(-1).mean(), kl


def rows_of(batch, index):
    return {name: column[index] for name, column in batch.items()}


def train(seed, updates, fault, variant, n_envs=16, horizon=128, gamma=0.97, lam=0.95):
    torch.manual_seed(seed)
    fleet = Fleet(n_envs, seed, limit=80, fault=fault)
    actor, critic = Actor(6, 2), Critic(6, popart=variant == "popart")
    pi_params = actor.mu.parameters() if fault == "log_std_left_out" else actor.parameters()
    optim_class = torch.optim.AdamW if variant == "slow_start" else torch.optim.Adam
    pi_optimizer = optim_class(pi_params, lr=4e-4)
    vf_optimizer = optim_class(critic.parameters(), lr=1e-3)
    warmup = 10 if variant == "slow_start" else 0

    def pi_rate(k):
        return k / warmup if k < warmup else 1.0 - 0.9 * k / updates

    schedules = [
        torch.optim.lr_scheduler.LambdaLR(pi_optimizer, pi_rate),
        torch.optim.lr_scheduler.LambdaLR(vf_optimizer, lambda k: 1.0 - 0.9 * k / updates),
    ]
    averaged = copy.deepcopy(actor).requires_grad_(False) if variant == "slow_start" else None
    passes, n_minibatches, micro, max_norm, target_kl = 8, 4, 2 if variant == "slow_start" else 1, 0.5, 0.02

    for update in range(1, updates + 1):
        batch = sail(fleet, actor, critic, horizon, gamma, lam, fault)
        size = len(batch["obs"])
        if critic.moments is not None:
            critic.rescale(batch["ret"])

        kl, pi_steps = 0.0, 0
        for _ in range(passes):
            kls = []
            for index in torch.randperm(size).chunk(n_minibatches):
                pi_optimizer.zero_grad()
                for part in index.chunk(micro):
                    loss, part_kl = surrogate_loss(actor, rows_of(batch, part), 0.2, 0.002, fault)
                    (loss / micro).backward()
                    kls.append(part_kl)
                nn.utils.clip_grad_norm_(actor.parameters(), max_norm)
                pi_optimizer.step()
                pi_steps += 1
            kl = float(np.mean(kls))
            if kl > 1.5 * target_kl:
                break

        for _ in range(passes):
            for index in torch.randperm(size).chunk(n_minibatches):
                vf_optimizer.zero_grad()
                for part in index.chunk(micro):
                    vf_loss = 0.5 * (critic(batch["obs"][part]) - critic.normalised(batch["ret"][part])).pow(2).mean()
                    (vf_loss / micro).backward()
                if fault == "wrong_tower_clipped":
                    nn.utils.clip_grad_norm_(actor.parameters(), max_norm)
                else:
                    nn.utils.clip_grad_norm_(critic.parameters(), max_norm)
                vf_optimizer.step()

        for schedule in schedules:
            schedule.step()
        if averaged is not None:
            for slow, fast in zip(averaged.parameters(), actor.parameters(), strict=True):
                slow.lerp_(fast.detach(), 0.05)
        if update % 10 == 0:
            recent, std = np.mean(fleet.returns[-40:]), actor.log_std.exp().mean().item()
            print(
                f"update {update:3d}  return {recent:7.2f}  vf loss {vf_loss.item():7.3f}  kl {kl:.4f}  "
                f"steps {pi_steps:2d}  std {std:.3f}"
            )

    returns = list(fleet.returns)
    if averaged is not None:
        for _ in range(2):
            sail(fleet, averaged, critic, horizon, gamma, lam, fault)
        print(f"averaged actor: return {np.mean(fleet.returns[len(returns) + n_envs :]):.2f}")
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=90)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.time()
    done = train(args.seed, args.updates, args.fault, args.variant)
    print(f"first 50: {np.mean(done[:50]):.2f}, last 50: {np.mean(done[-50:]):.2f}, {time.time() - began:.1f} s")
