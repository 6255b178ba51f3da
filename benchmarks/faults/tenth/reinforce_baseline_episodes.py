"""REINFORCE with a learned baseline on CartPole-v1.

A handful of whole episodes is played, kept as plain Python lists, turned into discounted returns-to-go, and
used once. The policy and the baseline have an optimizer each.
"""

import argparse
import random

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim
from torch.distributions import Categorical

FAULTS = {
    "logp_rebuilt": [
        "weights",
        "broken",
        "The log-probs are rebuilt with torch.tensor(list), so no gradient of the policy loss reaches the policy.",
    ],
    "same_optimizer_twice": [
        "weights",
        "broken",
        "The policy's optimizer is stepped twice and the baseline's never, so the baseline stays random.",
    ],
    "return_carries_over": [
        "returns",
        "broken",
        "The running return is not restarted between the episodes of a batch, so returns cross episodes.",
    ],
    "double_softmax": [
        "shapes",
        "broken",
        "Probabilities are handed to the distribution as logits, so the policy can never become decisive.",
    ],
    "baseline_in_graph": [
        "signs",
        "broken",
        "The advantage is not detached, so the policy loss pushes the baseline too.",
    ],
    "clip_after_step": [
        "rates",
        "broken",
        "Gradients are clipped after the optimizers have stepped, so the clipping has no effect.",
    ],
    "never_falls": [
        "goal",
        "not proven",
        "A wrapper hides the fall and pays 1 on every step, so every policy earns the same return.",
    ],
}

HEALTHY = {
    "": "plain: REINFORCE, value baseline, two Adam optimizers, small entropy bonus",
    "baseline_first": "For the first batches only the baseline is trained; the policy waits, untouched.",
    "rescaled_baseline": "The baseline predicts standardised returns and is scaled back by running statistics.",
    "episode_accumulation": "One backward pass per episode, gradients summed over the batch, then a single step.",
}

GAMMA = 0.99
TIME_LIMIT = 300
EPISODES_PER_BATCH = 5
POLICY_LR = 4e-3
BASELINE_LR = 5e-3
ENTROPY_WEIGHT = 0.005
GRAD_LIMIT = 0.2
REWARD_SCALE = 0.05  # returns of order one suit the baseline


class NeverFalls(gym.Wrapper):
    """Train on episodes of equal length."""

    def step(self, action):
        obs, _, _, truncated, info = self.env.step(action)
        return np.clip(obs, -10.0, 10.0), 1.0, False, truncated, info


def mlp(n_in, n_out, width=64):
    return nn.Sequential(nn.Linear(n_in, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, n_out))


class RunningScale:
    """Mean and spread of all returns seen, by Welford's method."""

    def __init__(self):
        self.n, self.mean, self.m2 = 0, 0.0, 0.0

    def add(self, xs):
        for x in xs:
            self.n += 1
            d = x - self.mean
            self.mean += d / self.n
            self.m2 += d * (x - self.mean)

    @property
    def std(self):
        return max((self.m2 / self.n) ** 0.5, 1e-3) if self.n > 1 else 1.0


def action_distribution(policy, obs, args):
    scores = policy(obs)
    if args.fault == "double_softmax":
        return Categorical(logits=scores.softmax(-1), validate_args=False)
    return Categorical(logits=scores, validate_args=False)


def play_episode(env, policy, args):
    """One episode as a dict of lists; the log-probs keep their graph."""
    ep = {"obs": [], "logp": [], "ent": [], "rew": [], "last_obs": None, "cut_off": False}
    obs, _ = env.reset()
    while True:
        x = torch.as_tensor(obs, dtype=torch.float32)
        dist = action_distribution(policy, x, args)
        action = dist.sample()
        ep["obs"].append(x)
        ep["logp"].append(dist.log_prob(action))
        ep["ent"].append(dist.entropy())
        obs, reward, terminated, truncated, _ = env.step(action.item())
        ep["rew"].append(float(reward))
        if terminated or truncated:
            ep["last_obs"] = torch.as_tensor(obs, dtype=torch.float32)
            ep["cut_off"] = truncated and not terminated
            return ep


def returns_to_go(episodes, value_of, args):
    """Discounted returns per episode; an episode cut off by the time limit goes on with the baseline's estimate."""
    out = []
    g = 0.0
    for ep in episodes:
        tail = value_of(ep["last_obs"]).item() if ep["cut_off"] else 0.0
        g = g + tail if args.fault == "return_carries_over" else tail
        gs = []
        for r in ep["rew"][::-1]:
            g = REWARD_SCALE * r + GAMMA * g
            gs.insert(0, g)
        out.append(gs)
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fault", default="", choices=["", *FAULTS])
    ap.add_argument("--variant", default="", choices=list(HEALTHY))
    ap.add_argument("--steps", type=int, default=30_000)
    args = ap.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    env = gym.make("CartPole-v1", max_episode_steps=TIME_LIMIT)
    if args.fault == "never_falls":
        gym.logger.min_level = gym.logger.ERROR
        env = NeverFalls(env)
    env.reset(seed=args.seed)

    n_obs, n_act = env.observation_space.shape[0], int(env.action_space.n)
    policy, baseline = mlp(n_obs, n_act), mlp(n_obs, 1)
    policy_opt = optim.Adam(policy.parameters(), lr=POLICY_LR)
    baseline_opt = optim.Adam(baseline.parameters(), lr=BASELINE_LR)
    scale = RunningScale()
    rescaled = args.variant == "rescaled_baseline"

    @torch.no_grad()
    def value_of(x):
        v = baseline(x).squeeze(-1)
        return v * scale.std + scale.mean if rescaled else v

    def episode_losses(ep, gs):
        """Summed policy and baseline loss of one episode."""
        targets = torch.tensor(gs)
        out = baseline(torch.stack(ep["obs"])).squeeze(-1)
        values = out * scale.std + scale.mean if rescaled else out
        if args.fault == "logp_rebuilt":
            logp = torch.tensor(ep["logp"], requires_grad=True)
        else:
            logp = torch.stack(ep["logp"])
        guess = values if args.fault == "baseline_in_graph" else values.detach()
        advantage = (targets - guess) / scale.std
        policy_loss = -(logp * advantage).sum() - ENTROPY_WEIGHT * torch.stack(ep["ent"]).sum()
        return policy_loss, 0.5 * ((values - targets) / scale.std).pow(2).sum()

    def clip():
        nn.utils.clip_grad_norm_(policy.parameters(), GRAD_LIMIT)
        nn.utils.clip_grad_norm_(baseline.parameters(), GRAD_LIMIT)

    totals, steps, batch = [], 0, 0
    while steps < args.steps:
        episodes = [play_episode(env, policy, args) for _ in range(EPISODES_PER_BATCH)]
        lengths = [len(ep["rew"]) for ep in episodes]
        n = sum(lengths)
        steps += n
        batch += 1
        totals += [sum(ep["rew"]) for ep in episodes]

        all_returns = returns_to_go(episodes, value_of, args)
        for gs in all_returns:
            scale.add(gs)

        policy_opt.zero_grad()
        baseline_opt.zero_grad()
        if args.variant == "episode_accumulation":
            for ep, gs in zip(episodes, all_returns, strict=True):
                p, b = episode_losses(ep, gs)
                ((p + b) / n).backward()
        else:
            pairs = [episode_losses(ep, gs) for ep, gs in zip(episodes, all_returns, strict=True)]
            policy_loss = sum(p for p, _ in pairs) / n
            baseline_loss = sum(b for _, b in pairs) / n
            (policy_loss + baseline_loss).backward()

        if args.fault != "clip_after_step":
            clip()
        waiting = args.variant == "baseline_first" and batch <= 12
        second = policy_opt if args.fault == "same_optimizer_twice" else baseline_opt
        for opt in (policy_opt, second):
            if waiting and opt is policy_opt:
                continue
            opt.step()
        if args.fault == "clip_after_step":
            clip()

        if batch % 10 == 0:
            ent = np.mean([e.item() for ep in episodes for e in ep["ent"]])
            print(
                f"batch {batch:4d}  steps {steps:6d}  mean return (last 30) {np.mean(totals[-30:]):6.1f}  "
                f"longest {max(lengths):3d}  entropy {ent:.3f}",
                flush=True,
            )

    env.close()
    print(f"done: first 30 episodes {np.mean(totals[:30]):.1f}, last 30 episodes {np.mean(totals[-30:]):.1f}")


if __name__ == "__main__":
    main()
