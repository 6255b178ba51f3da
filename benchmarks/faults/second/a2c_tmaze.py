# Advantage actor-critic with a GRU on a T-maze.
#
# The cue (left or right) is visible in the first cell only. The agent walks down a corridor and has to turn the right
# way at the junction, so a policy without memory cannot do better than a coin toss there.
import argparse
import random

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

FAULTS = {
    "mask_inverted": [
        "weights",
        "broken",
        "the hidden state is multiplied by done instead of 1 - done: the memory is wiped at every step",
    ],
    "late_head": [
        "weights",
        "broken",
        "the policy head is replaced by a freshly initialised one after the optimizer was built, so it never moves",
    ],
    "no_tail_bootstrap": [
        "returns",
        "broken",
        "the end of a rollout is treated as the end of the episode: returns start from 0 there",
    ],
    "reset_obs_value": [
        "returns",
        "broken",
        "after a time limit the value of the next episode's first observation is bootstrapped",
    ],
    "adv_attached": [
        "signs",
        "broken",
        "the advantage is not detached in the policy loss, which therefore also drives the critic",
    ],
    "double_softmax": [
        "shapes",
        "broken",
        "softmax probabilities are given to Categorical as logits: the policy can never become sharp",
    ],
    "second_sample": [
        "shapes",
        "broken",
        "the log-prob is that of a second sample, not of the action which was executed",
    ],
    "alive_sign": [
        "goal",
        "not proven",
        "the cost of a step is added, not subtracted: waiting for the time limit pays better than turning",
    ],
}
HEALTHY = {
    "": "plain",
    "frozen_embed": "observations go through a fixed random embedding that is not trained, on purpose",
    "zero_heads": "both heads start at exactly zero, so the first update gives no gradient to the GRU",
    "accumulate": "two rollouts per optimizer step, each loss halved",
    "forward_bias": "the policy starts almost deterministic (always forward), its entropy rises first",
}

CORRIDOR = 4
STEP_COST = 0.1


class TMaze(gym.Env):
    """obs = [cue left, cue right, position, at the junction]; actions: 0 forward, 1 left, 2 right"""

    def __init__(self, flip_cost=False):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (4,), dtype=np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self.flip_cost = flip_cost

    def look(self, cue=False):
        o = np.zeros(4, dtype=np.float32)
        if cue:
            o[self.side] = 1.0
        o[2] = self.pos / CORRIDOR
        o[3] = float(self.pos == CORRIDOR)
        return o

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.side = int(self.np_random.integers(2))
        self.pos = 0
        return self.look(cue=True), {}

    def step(self, action):
        if self.pos == CORRIDOR and action > 0:
            right = action - 1 == self.side
            return self.look(), 1.0 if right else -1.0, True, False, {"is_success": bool(right)}
        if action == 0:
            self.pos = min(self.pos + 1, CORRIDOR)
        reward = STEP_COST if self.flip_cost else -STEP_COST
        return self.look(), reward, False, False, {"is_success": False}


class MemoryPolicy(nn.Module):
    def __init__(self, n_obs, n_act, embed=16, hidden=32):
        super().__init__()
        self.embed = nn.Linear(n_obs, embed)
        self.gru = nn.GRUCell(embed, hidden)
        self.pi = nn.Linear(hidden, n_act)
        self.v = nn.Linear(hidden, 1)

    def forward(self, obs, h):
        h = self.gru(torch.tanh(self.embed(obs)), h)
        return self.pi(h), self.v(h).squeeze(-1), h


def small_head(n_in, n_out):
    layer = nn.Linear(n_in, n_out)
    nn.init.orthogonal_(layer.weight, 0.1)
    nn.init.zeros_(layer.bias)
    return layer


def n_step_returns(rewards, dones, tail, gamma):
    """rewards, dones: lists of T tensors of shape (N,); tail: value of the state after the rollout, (N,)"""
    out, running = [], tail
    for r, d in zip(reversed(rewards), reversed(dones), strict=True):
        running = r + gamma * running * (1.0 - d)
        out.append(running)
    out.reverse()
    return torch.stack(out)


def main(args):
    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    n_envs, horizon, gamma = 16, 20, 0.95

    envs = [gym.wrappers.TimeLimit(TMaze(flip_cost=args.fault == "alive_sign"), 20) for _ in range(n_envs)]
    net = MemoryPolicy(4, 3)
    net.pi = small_head(32, 3)
    if args.variant == "zero_heads":
        for head in (net.pi, net.v):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
    if args.variant == "forward_bias":
        with torch.no_grad():
            net.pi.bias[0] = 2.0
    if args.variant == "frozen_embed":
        net.embed.requires_grad_(False)
    trainable = [p for p in net.parameters() if p.requires_grad]
    optim = torch.optim.RMSprop(trainable, lr=2e-3, alpha=0.99, eps=1e-5)
    if args.fault == "late_head":
        net.pi = small_head(32, 3)

    obs = torch.as_tensor(np.stack([env.reset(seed=args.seed * 1000 + i)[0] for i, env in enumerate(envs)]))
    h = torch.zeros(n_envs, 32)
    tally, finished, solved = np.zeros(n_envs), [], []
    rollouts = args.steps // (n_envs * horizon)
    per_step = 2 if args.variant == "accumulate" else 1
    optim.zero_grad()

    for it in range(1, rollouts + 1):
        logps, values, entropies, rewards, dones = [], [], [], [], []
        h = h.detach()
        for _ in range(horizon):
            logits, value, h = net(obs, h)
            if args.fault == "double_softmax":
                dist = Categorical(logits=torch.softmax(logits, dim=-1))
            else:
                dist = Categorical(logits=logits)
            action = dist.sample()
            if args.fault == "second_sample":
                logps.append(dist.log_prob(dist.sample()))
            else:
                logps.append(dist.log_prob(action))
            values.append(value)
            entropies.append(dist.entropy())

            nxt, rew, done = [], np.zeros(n_envs, dtype=np.float32), np.zeros(n_envs, dtype=np.float32)
            for i, env in enumerate(envs):
                o, r, terminated, truncated, info = env.step(int(action[i]))
                rew[i] = r
                tally[i] += r
                if terminated or truncated:
                    done[i] = 1.0
                    fresh, _ = env.reset()
                    if truncated and not terminated:
                        # out of time is not the end of the world: put the value of what was seen last on top
                        seen = fresh if args.fault == "reset_obs_value" else o
                        with torch.no_grad():
                            _, last_value, _ = net(torch.as_tensor(seen)[None], h[i : i + 1])
                        rew[i] += gamma * last_value.item()
                    finished.append(tally[i])
                    solved.append(info["is_success"])
                    tally[i] = 0.0
                    o = fresh
                nxt.append(o)
            obs = torch.as_tensor(np.stack(nxt))
            done = torch.as_tensor(done)
            rewards.append(torch.as_tensor(rew))
            dones.append(done)
            # new episodes start with an empty memory
            h = h * done[:, None] if args.fault == "mask_inverted" else h * (1.0 - done)[:, None]

        with torch.no_grad():
            _, tail, _ = net(obs, h)
        if args.fault == "no_tail_bootstrap":
            tail = torch.zeros(n_envs)
        returns = n_step_returns(rewards, dones, tail, gamma)
        values, logps, entropy = torch.stack(values), torch.stack(logps), torch.stack(entropies).mean()

        adv = returns - values
        policy_loss = -(logps * (adv if args.fault == "adv_attached" else adv.detach())).mean()
        value_loss = adv.pow(2).mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
        (loss / per_step).backward()
        if it % per_step == 0:
            nn.utils.clip_grad_norm_(trainable, 0.5)
            optim.step()
            optim.zero_grad()

        if it % 50 == 0:
            print(
                f"{it * n_envs * horizon:>7} steps | return {np.mean(finished[-200:]):6.3f} | "
                f"solved {np.mean(solved[-200:]):.2f} | entropy {entropy.item():.3f} | v-loss {value_loss.item():.4f}"
            )

    fifth = max(1, len(finished) // 5)
    print(
        f"episodes {len(finished)}: {np.mean(finished[:fifth]):.3f} at first, {np.mean(finished[-fifth:]):.3f} at last"
    )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--steps", type=int, default=128_000)
    ap.add_argument("--fault", default="", choices=["", *FAULTS])
    ap.add_argument("--variant", default="", choices=list(HEALTHY))
    main(ap.parse_args())
