"""Soft actor-critic with a tuned temperature on Pendulum-v1, as plain functions over dicts."""

import argparse
import copy
import math
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FAULTS = {
    "shallow": ["targets", "broken", "copy.copy of the critic: the target holds the very same parameters"],
    "one_head": ["weights", "broken", "the second value also comes from the first network, the second never trains"],
    "leak": [
        "signs",
        "broken",
        "log-prob is not detached in the temperature loss, which cancels the actor's entropy term",
    ],
    "jacobian": ["shapes", "broken", "squash correction takes tanh of the action that has been squashed already"],
    "empty_rows": ["returns", "broken", "batches drawn over the whole capacity, rows that were never written included"],
    "abs_cost": [
        "goal",
        "not proven",
        "reward scaling takes the absolute value, so that costs are paid out as rewards",
    ],
}
HEALTHY = {
    "": "plain",
    "log_alpha": "log_alpha stands in place of alpha in the temperature loss",
    "delayed": "actor and temperature updated every second step, two updates then",
    "decay": "weight decay on critic and actor",
}
HP = {"gamma": 0.98, "tau": 0.01, "lr": 1e-3, "batch": 64, "capacity": 20_000, "warmup": 500, "hidden": 64}


def mlp(n_in, n_out, hidden):
    return nn.Sequential(
        nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_out)
    )


class TwinCritic(nn.Module):
    def __init__(self, n_obs, n_act, hidden, fault=""):
        super().__init__()
        self.fault = fault
        self.net1 = mlp(n_obs + n_act, 1, hidden)
        self.net2 = mlp(n_obs + n_act, 1, hidden)

    def forward(self, obs, act):
        x = torch.cat([obs, act], -1)
        if self.fault == "one_head":
            return self.net1(x).squeeze(-1), self.net1(x).squeeze(-1)
        return self.net1(x).squeeze(-1), self.net2(x).squeeze(-1)


def build(n_obs, n_act, args):
    nets = {"actor": mlp(n_obs, 2 * n_act, HP["hidden"])}
    nets["critic"] = TwinCritic(n_obs, n_act, HP["hidden"], args.fault)
    nets["target"] = copy.copy(nets["critic"]) if args.fault == "shallow" else copy.deepcopy(nets["critic"])
    nets["log_alpha"] = torch.tensor(math.log(0.2), requires_grad=True)
    make = torch.optim.Adam
    if args.variant == "decay":

        def make(params, lr):
            return torch.optim.AdamW(params, lr=lr, weight_decay=1e-3)

    opts = {name: make(nets[name].parameters(), lr=HP["lr"]) for name in ("actor", "critic")}
    opts["alpha"] = torch.optim.Adam([nets["log_alpha"]], lr=HP["lr"])
    return nets, opts


def make_memory(n_obs, n_act):
    n = HP["capacity"]
    widths = {"obs": (n, n_obs), "act": (n, n_act), "rew": (n,), "next": (n, n_obs), "term": (n,)}
    return {name: torch.zeros(*shape) for name, shape in widths.items()} | {"count": 0}


def remember(memory, **row):
    i = memory["count"] % HP["capacity"]
    for name, value in row.items():
        memory[name][i] = torch.as_tensor(value, dtype=torch.float32)
    memory["count"] += 1


def draw(memory, args):
    size = HP["capacity"] if args.fault == "empty_rows" else min(memory["count"], HP["capacity"])
    rows = torch.randint(size, (HP["batch"],))
    return {name: memory[name][rows] for name in ("obs", "act", "rew", "next", "term")}


def policy(nets, obs, args):
    """An action in (-1, 1) and its log-probability."""
    mean, log_std = nets["actor"](obs).chunk(2, -1)
    dist = torch.distributions.Normal(mean, log_std.clamp(-5.0, 2.0).exp(), validate_args=False)
    raw = dist.rsample()
    act = torch.tanh(raw)
    squashed = torch.tanh(act) if args.fault == "jacobian" else act
    logp = dist.log_prob(raw) - torch.log(1.0 - squashed.pow(2) + 1e-6)
    return act, logp.sum(-1)


def update_critic(nets, opts, batch, args):
    with torch.no_grad():
        act, logp = policy(nets, batch["next"], args)
        t1, t2 = nets["target"](batch["next"], act)
        soft = torch.min(t1, t2) - nets["log_alpha"].exp() * logp
        y = batch["rew"] + HP["gamma"] * (1.0 - batch["term"]) * soft
    q1, q2 = nets["critic"](batch["obs"], batch["act"])
    loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
    opts["critic"].zero_grad()
    loss.backward()
    opts["critic"].step()
    return loss.item(), q1.mean().item()


def update_actor(nets, opts, batch, args, target_entropy):
    act, logp = policy(nets, batch["obs"], args)
    alpha = nets["log_alpha"].exp()
    q = torch.min(*nets["critic"](batch["obs"], act))
    actor_loss = (alpha.detach() * logp - q).mean()
    gap = logp + target_entropy
    if args.fault != "leak":
        gap = gap.detach()
    alpha_loss = -((nets["log_alpha"] if args.variant == "log_alpha" else alpha) * gap).mean()
    opts["actor"].zero_grad()
    opts["alpha"].zero_grad()
    (actor_loss + alpha_loss).backward()
    opts["actor"].step()
    opts["alpha"].step()
    return -logp.mean().item()


@torch.no_grad()
def polyak(nets):
    for t, p in zip(nets["target"].parameters(), nets["critic"].parameters(), strict=True):
        t.mul_(1.0 - HP["tau"]).add_(p, alpha=HP["tau"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--steps", type=int, default=4_000)
    p.add_argument("--fault", default="", choices=["", *FAULTS])
    p.add_argument("--variant", default="", choices=list(HEALTHY))
    args = p.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    def scale(r):
        return 0.125 * (abs(r) if args.fault == "abs_cost" else r)

    env = gym.wrappers.TransformReward(gym.make("Pendulum-v1", max_episode_steps=100), scale)
    n_obs, n_act = env.observation_space.shape[0], env.action_space.shape[0]
    high = env.action_space.high
    nets, opts = build(n_obs, n_act, args)
    memory = make_memory(n_obs, n_act)
    returns, score, shown, start = [], 0.0, time.time(), time.process_time()
    loss = value = entropy = float("nan")
    obs, _ = env.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        if step <= HP["warmup"]:
            act = rng.uniform(-1.0, 1.0, n_act).astype(np.float32)
        else:
            with torch.no_grad():
                act = policy(nets, torch.as_tensor(obs), args)[0].numpy()
        next_obs, reward, terminated, truncated, _ = env.step(act * high)
        # Pendulum only ever runs out of time, so that the value of the last state still counts
        remember(memory, obs=obs, act=act, rew=reward, next=next_obs, term=terminated)
        obs, score = next_obs, score + reward
        if terminated or truncated:
            returns.append(score)
            (obs, _), score = env.reset(), 0.0
        if step > HP["warmup"]:
            batch = draw(memory, args)
            loss, value = update_critic(nets, opts, batch, args)
            every = 2 if args.variant == "delayed" else 1
            for _ in range(every if step % every == 0 else 0):
                entropy = update_actor(nets, opts, batch, args, -float(n_act))
            polyak(nets)
        if time.time() - shown > 2.0 and returns:
            shown = time.time()
            print(
                f"step {step:6d}  return {np.mean(returns[-5:]):8.2f}  critic loss {loss:.4f}  q {value:.2f}  "
                f"entropy {entropy:+.2f}  alpha {nets['log_alpha'].exp().item():.3f}",
                flush=True,
            )
    tenth = max(1, len(returns) // 10)
    print(
        f"episodes {len(returns)}  first tenth {np.mean(returns[:tenth]):.2f}  last tenth {np.mean(returns[-tenth:]):.2f}"
        f"  cpu {time.process_time() - start:.1f}s"
    )


if __name__ == "__main__":
    main()
