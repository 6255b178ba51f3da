# %% [markdown]
# # Docking a small craft with DDPG
# Two thrusters, a random start and a random dock; the episode ends when the craft is docked.

# %%
import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FAULTS = {
    "graph_cut": ["weights", "broken", "the actor's action is rebuilt as a new tensor, so the actor gets no gradient"],
    "tau_swapped": ["targets", "broken", "tau and 1 - tau swapped: the targets are all but the online networks"],
    "clean_action_stored": ["returns", "broken", "memory keeps the action before noise, not the one that was executed"],
    "joint_step": ["signs", "broken", "one optimizer and one summed loss: the actor loss also pushes the critic up"],
    "best_not_copied": ["rates", "broken", "best weights kept as state_dict() without a copy: restoring does nothing"],
    "stale_position": ["goal", "not proven", "reward and docking read the position of the reset, whatever is done"],
}
HEALTHY = {
    "": "plain",
    "gaussian": "independent Gaussian noise that shrinks over time, in place of Ornstein-Uhlenbeck noise",
    "lazy_targets": "targets move by a tenth, but only every 20 updates",
    "ema_actor": "a moving average of the actor is kept beside it and used for the evaluations only",
}

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=5000)
parser.add_argument("--fault", default="", choices=["", *FAULTS])
parser.add_argument("--variant", default="", choices=list(HEALTHY))
args = parser.parse_args()

rng = np.random.default_rng(args.seed)
torch.manual_seed(args.seed)
torch.set_num_threads(1)


# %% The task
class Docking(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def observe(self):
        return np.concatenate([self.dock - self.pos, self.vel]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.np_random.uniform(-1.0, 1.0, 2)
        self.dock = self.np_random.uniform(-1.0, 1.0, 2)
        self.vel = np.zeros(2)
        self.craft = self.pos  # what the harbour camera sees
        self.t = 0
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        self.vel = 0.9 * self.vel + 0.2 * np.clip(action, -1.0, 1.0)
        if args.fault == "stale_position":
            self.pos = np.clip(self.pos + 0.1 * self.vel, -2.0, 2.0)
        else:
            self.pos += 0.1 * self.vel
            np.clip(self.pos, -2.0, 2.0, out=self.pos)
        distance = float(np.linalg.norm(self.craft - self.dock))
        docked = distance < 0.1
        return self.observe(), -distance + 2.0 * docked, docked, self.t >= 60, {}


env, eval_env = Docking(), Docking()

# %% Networks
GAMMA, TAU, BATCH, WARMUP = 0.97, 0.01, 64, 500
actor = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2), nn.Tanh())
critic = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
if args.fault == "joint_step":
    joint_opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
else:
    actor_opt = torch.optim.Adam(actor.parameters(), lr=5e-4)
    critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-3)


def q(net, s, a):
    return net(torch.cat([s, a], dim=1)).squeeze(1)


def evaluate(policy, episodes=5):
    total = 0.0
    for k in range(episodes):
        s, _ = eval_env.reset(seed=1000 + k)
        over = False
        while not over:
            with torch.no_grad():
                a = policy(torch.from_numpy(s)).numpy()
            s, r, terminated, truncated, _ = eval_env.step(a)
            total += r
            over = terminated or truncated
    return total / episodes


# %% Memory and noise
capacity = 20_000
S, S2 = torch.zeros(capacity, 4), torch.zeros(capacity, 4)
A, R, D = torch.zeros(capacity, 2), torch.zeros(capacity), torch.zeros(capacity)
noise = np.zeros(2)
returns, ep_return, best_score, best_weights = [], 0.0, -np.inf, None
evaluated = actor
if args.variant == "ema_actor":
    evaluated = actor_average = copy.deepcopy(actor)

# %% Training
s, _ = env.reset(seed=args.seed)
clock = time.time()
for step in range(args.steps):
    if step < WARMUP:
        clean = a = rng.uniform(-1, 1, 2)
    else:
        with torch.no_grad():
            clean = actor(torch.from_numpy(s)).numpy()
        if args.variant == "gaussian":
            noise = rng.standard_normal(2) * (0.3 - 0.25 * step / args.steps)
        else:
            noise = noise - 0.15 * noise + 0.15 * rng.standard_normal(2)
        a = np.clip(clean + noise, -1, 1)
    s2, r, terminated, truncated, _ = env.step(a)
    ep_return += r

    i = step % capacity
    S[i], S2[i], R[i], D[i] = torch.from_numpy(s), torch.from_numpy(s2), r, float(terminated)
    A[i] = torch.from_numpy(clean if args.fault == "clean_action_stored" else a)
    s = s2
    if terminated or truncated:
        returns.append(ep_return)
        ep_return = 0.0
        noise = np.zeros(2)
        s, _ = env.reset()

    if step >= WARMUP:
        idx = torch.randint(0, min(step + 1, capacity), (BATCH,))
        bs, ba, br, bs2, bd = S[idx], A[idx], R[idx], S2[idx], D[idx]
        with torch.no_grad():
            y = br + GAMMA * (1 - bd) * q(critic_target, bs2, actor_target(bs2))
        critic_loss = ((q(critic, bs, ba) - y) ** 2).mean()
        if args.fault == "joint_step":
            actor_loss = -q(critic, bs, actor(bs)).mean()
            joint_opt.zero_grad()
            (critic_loss + actor_loss).backward()
            joint_opt.step()
        else:
            critic_opt.zero_grad()
            critic_loss.backward()
            critic_opt.step()

            proposal = actor(bs)
            if args.fault == "graph_cut":
                proposal = torch.tensor(proposal.tolist())
            actor_loss = -q(critic, bs, proposal).mean()
            actor_opt.zero_grad()
            actor_loss.backward()
            actor_opt.step()

        tau, every = (0.1, 20) if args.variant == "lazy_targets" else (TAU, 1)
        if args.fault == "tau_swapped":
            tau = 1 - tau
        if step % every == 0:
            with torch.no_grad():
                for net, target in [(actor, actor_target), (critic, critic_target)]:
                    for p, tp in zip(net.parameters(), target.parameters(), strict=True):
                        tp.copy_(tau * p + (1 - tau) * tp)
        if args.variant == "ema_actor":
            with torch.no_grad():
                for p, ap in zip(actor.parameters(), actor_average.parameters(), strict=True):
                    ap.lerp_(p, 0.005)

    if (step + 1) % 250 == 0:
        score = evaluate(evaluated)
        if score > best_score:
            best_score = score
            best_weights = evaluated.state_dict()
            if args.fault != "best_not_copied":
                best_weights = copy.deepcopy(best_weights)
    if time.time() - clock > 3:
        clock = time.time()
        print(f"step {step:6d}  train {np.mean(returns[-20:]):7.2f}  best evaluation {best_score:7.2f}", flush=True)

# %% Results
if best_weights is not None:
    evaluated.load_state_dict(best_weights)
tenth = max(1, len(returns) // 10)
print(
    f"episodes {len(returns)}  first tenth {np.mean(returns[:tenth]):.2f}  last tenth {np.mean(returns[-tenth:]):.2f}"
)
print(f"best evaluation {best_score:.2f}  restored policy {evaluate(evaluated):.2f}")
