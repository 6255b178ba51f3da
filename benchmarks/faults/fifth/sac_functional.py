"""Soft actor-critic on Pendulum: plain functions, dicts of networks, twin critics as one module of stacked weights."""

import argparse
import math
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

FAULTS = {
    "born_twins": ["weights", "broken", "both critics begin with the same weights and so stay one critic for ever"],
    "detached_view": ["targets", "broken", "the target's weights are views of the critic's own, not copies"],
    "action_of_before": ["returns", "broken", "the next action and its log-prob come from the state before the step"],
    "two_units": ["shapes", "broken", "replay holds torques up to 2, while the losses ask about actions up to 1"],
    "entropy_fined": ["signs", "broken", "the critics' target adds the log-prob instead of taking it away"],
    "sign_reward": ["goal", "not proven", "rewards are clipped to their sign, which on this task is always -1"],
}
HEALTHY = {
    "": "plain: three optimizers, one update per step",
    "joint": "one Adam for actor, critics and temperature, one backward for the sum of the three losses",
    "bursts": "fifty steps without learning, then fifty updates in a row",
    "scaled": "rewards times 0.1 inside the learner; the temperature loss uses log alpha; gradients clipped by value",
}
LIMIT = 2.0  # largest torque


class StackedCritic(nn.Module):
    """Two critics at once: every weight has a leading axis of two."""

    def __init__(self, n_in, hidden, alike=False):
        super().__init__()
        sizes = [(n_in, hidden), (hidden, hidden), (hidden, 1)]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for n_from, n_to in sizes:
            bound = 1 / math.sqrt(n_from)
            weight = torch.empty(1 if alike else 2, n_from, n_to).uniform_(-bound, bound)
            self.weights.append(nn.Parameter(weight.expand(2, -1, -1).clone()))
            self.biases.append(nn.Parameter(torch.zeros(2, 1, n_to)))

    def forward(self, obs, action):
        x = torch.cat([obs, action], -1).expand(2, -1, -1)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if i < 2:
                x = F.relu(x)
        return x.squeeze(-1)


def build(args, n_obs=3, n_act=1, hidden=96, lr=1e-3):
    actor = nn.Sequential(
        nn.Linear(n_obs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2 * n_act)
    )
    critic = StackedCritic(n_obs + n_act, hidden, alike=args.fault == "born_twins")
    log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
    target = {name: weight.detach() for name, weight in critic.named_parameters()}
    if args.fault != "detached_view":
        target = {name: weight.clone() for name, weight in target.items()}
    groups = {"actor": actor.parameters(), "critic": critic.parameters(), "alpha": [log_alpha]}
    if args.variant == "joint":
        opts = {"joint": torch.optim.Adam([{"params": params} for params in groups.values()], lr=lr)}
    else:
        opts = {name: torch.optim.Adam(params, lr=lr) for name, params in groups.items()}
    return {"actor": actor, "critic": critic, "log_alpha": log_alpha, "target": target}, opts


def propose(actor, obs):
    """A squashed Gaussian action in (-1, 1) and its log-density."""
    mean, log_std = actor(obs).chunk(2, -1)
    dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    raw = dist.rsample()
    fold = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
    return raw.tanh(), (dist.log_prob(raw) - fold).sum(-1)


def critic_loss(nets, batch, args, gamma=0.99):
    alpha = nets["log_alpha"].exp().detach()
    reward = batch["reward"] * (0.1 if args.variant == "scaled" else 1.0)
    with torch.no_grad():
        seen = batch["obs"] if args.fault == "action_of_before" else batch["after"]
        action, log_prob = propose(nets["actor"], seen)
        worst = functional_call(nets["critic"], nets["target"], (batch["after"], action)).amin(0)
        soft = worst + alpha * log_prob if args.fault == "entropy_fined" else worst - alpha * log_prob
        goal = reward + gamma * (1 - batch["terminated"]) * soft
    q = nets["critic"](batch["obs"], batch["action"])
    return F.mse_loss(q[0], goal) + F.mse_loss(q[1], goal)


def actor_loss(nets, batch):
    """The critics' weights are held fixed here, so that only the actor gets a gradient."""
    action, log_prob = propose(nets["actor"], batch["obs"])
    fixed = {name: weight.detach() for name, weight in nets["critic"].named_parameters()}
    q = functional_call(nets["critic"], fixed, (batch["obs"], action)).amin(0)
    return (nets["log_alpha"].exp().detach() * log_prob - q).mean(), log_prob.detach()


def alpha_loss(nets, log_prob, args, wanted_entropy=-1.0):
    weight = nets["log_alpha"] if args.variant == "scaled" else nets["log_alpha"].exp()
    return -(weight * (log_prob + wanted_entropy)).mean()


def apply(loss, opt, clip=None):
    opt.zero_grad()
    loss.backward()
    if clip:
        nn.utils.clip_grad_value_([p for group in opt.param_groups for p in group["params"]], clip)
    opt.step()


def update(nets, opts, batch, args, tau=0.01):
    clip = 1.0 if args.variant == "scaled" else None
    if args.variant == "joint":
        loss_q = critic_loss(nets, batch, args)
        loss_pi, log_prob = actor_loss(nets, batch)
        apply(loss_q + loss_pi + alpha_loss(nets, log_prob, args), opts["joint"])
    else:
        loss_q = critic_loss(nets, batch, args)
        apply(loss_q, opts["critic"], clip)
        loss_pi, log_prob = actor_loss(nets, batch)
        apply(loss_pi, opts["actor"], clip)
        apply(alpha_loss(nets, log_prob, args), opts["alpha"], clip)
    with torch.no_grad():
        for name, weight in nets["critic"].named_parameters():
            nets["target"][name].lerp_(weight, tau)
    return loss_q.item(), -log_prob.mean().item()


def new_replay(size, n_obs=3, n_act=1):
    widths = {"obs": (n_obs,), "action": (n_act,), "reward": (), "after": (n_obs,), "terminated": ()}
    return {name: torch.zeros(size, *width) for name, width in widths.items()}


def write(replay, row, **values):
    for name, value in values.items():
        replay[name][row] = torch.as_tensor(value, dtype=torch.float32)


def make_env(args):
    env = gym.make("Pendulum-v1")
    if args.fault == "sign_reward":
        env = gym.wrappers.TransformReward(env, np.sign)
    return env


def train(args, random_steps=600, batch_size=96):
    env = make_env(args)
    nets, opts = build(args)
    replay = new_replay(args.steps)
    draw = torch.Generator().manual_seed(args.seed)
    obs, _ = env.reset(seed=args.seed)
    returns, total, said, shown = [], 0.0, time.time(), (0.0, 0.0)
    every = 50 if args.variant == "bursts" else 1
    for step in range(args.steps):
        if step < random_steps:
            action = 2 * torch.rand(1, generator=draw) - 1
        else:
            with torch.no_grad():
                action, _ = propose(nets["actor"], torch.as_tensor(obs))
        torque = LIMIT * action
        after, reward, terminated, truncated, _ = env.step(torque.numpy())
        kept = torque if args.fault == "two_units" else action
        write(replay, step, obs=obs, action=kept, reward=reward, after=after, terminated=terminated)
        obs, total = after, total + reward
        if terminated or truncated:
            returns.append(total)
            obs, total = env.reset()[0], 0.0
        if step >= random_steps and (step + 1) % every == 0:
            for _ in range(every):
                rows = torch.randint(step + 1, (batch_size,), generator=draw)
                shown = update(nets, opts, {name: column[rows] for name, column in replay.items()}, args)
        if time.time() - said > 3:
            said, alpha = time.time(), nets["log_alpha"].exp().item()
            recent = np.mean(returns[-5:])
            text = f"return {recent:.0f} alpha {alpha:.3f} critic loss {shown[0]:.3f} entropy {shown[1]:.2f}"
            print(f"step {step} {text}", flush=True)
    return returns


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=5200)
    parser.add_argument("--fault", choices=["", *FAULTS], default="")
    parser.add_argument("--variant", choices=list(HEALTHY), default="")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    returns = train(args)
    tenth = max(1, len(returns) // 10)
    print(f"return, first tenth {np.mean(returns[:tenth]):.1f}, last tenth {np.mean(returns[-tenth:]):.1f}")


if __name__ == "__main__":
    main()
