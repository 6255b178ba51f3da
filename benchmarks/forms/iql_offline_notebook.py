# Implicit Q-learning on offline MountainCarContinuous data, notebook style: flat cells and module-level globals.

# %% setup
import argparse
import copy

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--updates", type=int, default=4000)
args = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)

GAMMA, TAU, EXPECTILE, BETA, BATCH, LR = 0.99, 0.005, 0.7, 3.0, 128, 1e-3
REWARD_SCALE = 0.05
N_DATA = 10_000

# %% data: push in the direction of motion, with a random gain per episode and plenty of noise
env = gym.make("MountainCarContinuous-v0")
S = np.zeros((N_DATA, 2), np.float32)
A = np.zeros((N_DATA, 1), np.float32)
R = np.zeros(N_DATA, np.float32)
S2 = np.zeros((N_DATA, 2), np.float32)
TERM = np.zeros(N_DATA, np.float32)

obs, _ = env.reset(seed=args.seed)
gain, score, behaviour = rng.uniform(0.3, 1.0), 0.0, []
for i in range(N_DATA):
    a = gain * (1.0 if obs[1] >= 0 else -1.0) + rng.normal(0.0, 0.4)
    if rng.random() < 0.1:
        a = rng.uniform(-1.0, 1.0)
    a = np.clip(np.array([a], dtype=np.float32), -1.0, 1.0)
    obs2, r, terminated, truncated, _ = env.step(a)
    S[i], A[i], R[i], S2[i], TERM[i] = obs, a, r, obs2, float(terminated)
    score += float(r)
    obs = obs2
    if terminated or truncated:
        behaviour.append(score)
        obs, _ = env.reset()
        gain, score = rng.uniform(0.3, 1.0), 0.0
print(f"{len(behaviour)} episodes, behaviour return {np.mean(behaviour):.1f}, terminations {int(TERM.sum())}")

mean, std = S.mean(axis=0), S.std(axis=0) + 1e-6
S_t = torch.from_numpy((S - mean) / std)
S2_t = torch.from_numpy((S2 - mean) / std)
A_t = torch.from_numpy(A)
R_t = torch.from_numpy(R * REWARD_SCALE)
TERM_t = torch.from_numpy(TERM)


# %% networks
def net(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, n_out))


qf1, qf2, vf, pi_body = net(3, 1), net(3, 1), net(2, 1), net(2, 1)
pi_log_std = nn.Parameter(torch.full((1,), -0.5))
qf1_t, qf2_t = copy.deepcopy(qf1), copy.deepcopy(qf2)
q_opt = torch.optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=LR)
v_opt = torch.optim.Adam(vf.parameters(), lr=LR)
pi_opt = torch.optim.Adam([*pi_body.parameters(), pi_log_std], lr=LR)


def policy(s):
    return torch.distributions.Normal(torch.tanh(pi_body(s)), pi_log_std.clamp(-3.0, 1.0).exp())


def evaluate(episodes=3):
    scores, lengths = [], []
    for k in range(episodes):
        o, _ = env.reset(seed=1000 + args.seed + k)
        total, n = 0.0, 0
        while True:
            with torch.no_grad():
                x = torch.from_numpy(((o - mean) / std).astype(np.float32))
                act = policy(x).mean.clamp(-1.0, 1.0).numpy()
            o, rew, term, trunc, _ = env.step(act)
            total += float(rew)
            n += 1
            if term or trunc:
                break
        scores.append(total)
        lengths.append(n)
    return np.mean(scores), np.mean(lengths)


# %% training
print("before training: return %.1f, length %.0f" % evaluate())
for it in range(1, args.updates + 1):
    b = torch.from_numpy(rng.integers(0, N_DATA, size=BATCH))
    s, a, r, s2, term = S_t[b], A_t[b], R_t[b], S2_t[b], TERM_t[b]
    sa = torch.cat([s, a], dim=1)

    # V: expectile regression towards the target critics at data actions
    with torch.no_grad():
        q_data = torch.min(qf1_t(sa), qf2_t(sa)).squeeze(1)
    v = vf(s).squeeze(1)
    diff = q_data - v
    weight = torch.where(diff > 0, EXPECTILE, 1.0 - EXPECTILE)
    v_loss = (weight * diff.pow(2)).mean()
    v_opt.zero_grad()
    v_loss.backward()
    v_opt.step()

    # policy: advantage-weighted log-likelihood of the data actions
    with torch.no_grad():
        advantage = q_data - v
        w = torch.exp(BETA * advantage).clamp(max=100.0)
    log_prob = policy(s).log_prob(a).sum(dim=1)
    pi_loss = -(w * log_prob).mean()
    pi_opt.zero_grad()
    pi_loss.backward()
    pi_opt.step()

    # Q: one-step backup through V, never through an out-of-data action
    with torch.no_grad():
        y = r + GAMMA * (1.0 - term) * vf(s2).squeeze(1)
    q_loss = F.mse_loss(qf1(sa).squeeze(1), y) + F.mse_loss(qf2(sa).squeeze(1), y)
    q_opt.zero_grad()
    q_loss.backward()
    q_opt.step()

    with torch.no_grad():
        for slow, fast in ((qf1_t, qf1), (qf2_t, qf2)):
            for p_slow, p_fast in zip(slow.parameters(), fast.parameters()):
                p_slow.mul_(1.0 - TAU).add_(TAU * p_fast)

    if it % 800 == 0:
        ret, length = evaluate()
        print(
            f"update {it:5d}  v {v_loss.item():.4f}  q {q_loss.item():.4f}  pi {pi_loss.item():.3f}"
            f"  return {ret:7.1f}  length {length:.0f}",
            flush=True,
        )

# %% end
env.close()
