"""Soft actor-critic with automatic temperature on Pendulum-v1, single file."""

import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

FAULTS = {
    "second_critic_idle": ["weights", "broken", "only qf1's parameters are in the critic optimizer"],
    "scaled_jacobian": ["shapes", "broken", "the tanh correction uses the action after scaling by 2, clamped"],
    "reward_slot": ["returns", "broken", "the buffer writes the reward one slot late: it belongs to the step before"],
    "soft_update_lost": ["targets", "broken", "out-of-place mul/add: the soft target update changes nothing"],
    "late_zero_grad": [
        "signs",
        "broken",
        "critic gradients cleared after the step: the actor loss leaks into the critics",
    ],
    "sign_clipping": ["goal", "not proven", "Atari-style sign clipping of a cost: every reward is -1"],
}
HEALTHY = {
    "": "plain",
    "hard_targets": "targets are copied in full every 100 updates, with no averaging",
    "log_alpha": "log_alpha in place of alpha in the temperature loss",
    "delayed_actor": "actor and temperature are updated every second step, twice in a row",
}
LOG_STD_MIN, LOG_STD_MAX = -5, 2


class SoftQNetwork(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.fc1 = nn.Linear(obs_dim + act_dim, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 1)

    def forward(self, x, a):
        x = F.relu(self.fc1(torch.cat([x, a], 1)))
        return self.fc3(F.relu(self.fc2(x)))


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, scale, wrong_jacobian=False):
        super().__init__()
        self.fc1 = nn.Linear(obs_dim, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc_mean = nn.Linear(64, act_dim)
        self.fc_logstd = nn.Linear(64, act_dim)
        self.scale, self.wrong_jacobian = scale, wrong_jacobian

    def get_action(self, x):
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        mean, log_std = self.fc_mean(x), torch.tanh(self.fc_logstd(x))
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        action = y_t * self.scale
        if self.wrong_jacobian:
            correction = torch.log((1 - action.pow(2)).clamp(min=1e-6))
        else:
            correction = torch.log(self.scale * (1 - y_t.pow(2)) + 1e-6)
        return action, (normal.log_prob(x_t) - correction).sum(1, keepdim=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4600)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--tau", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-starts", type=int, default=600)
    parser.add_argument("--policy-lr", type=float, default=1e-3)
    parser.add_argument("--q-lr", type=float, default=2e-3)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    env = gym.make("Pendulum-v1")
    if args.fault == "sign_clipping":
        env = gym.wrappers.TransformReward(env, lambda r: float(np.sign(r)))
    env.action_space.seed(args.seed)
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]

    actor = Actor(obs_dim, act_dim, float(env.action_space.high[0]), args.fault == "scaled_jacobian")
    qf1, qf2 = SoftQNetwork(obs_dim, act_dim), SoftQNetwork(obs_dim, act_dim)
    qf1_target, qf2_target = copy.deepcopy(qf1), copy.deepcopy(qf2)
    q_params = list(qf1.parameters())
    if args.fault != "second_critic_idle":
        q_params += list(qf2.parameters())
    q_optimizer = optim.Adam(q_params, lr=args.q_lr)
    actor_optimizer = optim.Adam(actor.parameters(), lr=args.policy_lr)
    target_entropy = -float(act_dim)
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha = log_alpha.exp().item()
    a_optimizer = optim.Adam([log_alpha], lr=args.q_lr)

    # ring buffer
    size = 20_000
    b_obs = np.zeros((size, obs_dim), np.float32)
    b_next = np.zeros((size, obs_dim), np.float32)
    b_act = np.zeros((size, act_dim), np.float32)
    b_rew = np.zeros((size, 1), np.float32)
    b_term = np.zeros((size, 1), np.float32)
    ptr, filled = 0, 0

    returns, episode_return, updates, last_print = [], 0.0, 0, time.time()
    qf_loss = torch.zeros(())
    obs, _ = env.reset(seed=args.seed)
    for global_step in range(args.steps):
        if global_step < args.learning_starts:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = actor.get_action(torch.as_tensor(obs).unsqueeze(0))[0][0].numpy()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        episode_return += float(reward)

        b_obs[ptr], b_next[ptr], b_act[ptr], b_term[ptr] = obs, next_obs, action, terminated
        if args.fault == "reward_slot":
            b_rew[(ptr + 1) % size] = reward
        else:
            b_rew[ptr] = reward
        ptr = (ptr + 1) % size
        filled = min(filled + 1, size)

        obs = next_obs
        if terminated or truncated:
            returns.append(episode_return)
            episode_return = 0.0
            obs, _ = env.reset()

        if global_step < args.learning_starts:
            continue

        idx = rng.integers(0, filled, args.batch_size)
        s, s2, a, r, d = (torch.from_numpy(b[idx]) for b in (b_obs, b_next, b_act, b_rew, b_term))
        with torch.no_grad():
            a2, logp2 = actor.get_action(s2)
            min_q2 = torch.min(qf1_target(s2, a2), qf2_target(s2, a2)) - alpha * logp2
            target = r + (1 - d) * args.gamma * min_q2
        qf_loss = F.mse_loss(qf1(s, a), target) + F.mse_loss(qf2(s, a), target)
        if args.fault == "late_zero_grad":
            qf_loss.backward()
            q_optimizer.step()
            q_optimizer.zero_grad()
        else:
            q_optimizer.zero_grad()
            qf_loss.backward()
            q_optimizer.step()
        updates += 1

        delay = 2 if args.variant == "delayed_actor" else 1
        if updates % delay == 0:
            for _ in range(delay):
                pi, logp = actor.get_action(s)
                actor_loss = (alpha * logp - torch.min(qf1(s, pi), qf2(s, pi))).mean()
                actor_optimizer.zero_grad()
                actor_loss.backward()
                actor_optimizer.step()

                coefficient = log_alpha if args.variant == "log_alpha" else log_alpha.exp()
                alpha_loss = (-coefficient * (logp.detach() + target_entropy)).mean()
                a_optimizer.zero_grad()
                alpha_loss.backward()
                a_optimizer.step()
                alpha = log_alpha.exp().item()

        with torch.no_grad():
            for net, net_target in ((qf1, qf1_target), (qf2, qf2_target)):
                for p, tp in zip(net.parameters(), net_target.parameters(), strict=True):
                    if args.variant == "hard_targets":
                        if updates % 100 == 0:
                            tp.copy_(p)
                    elif args.fault == "soft_update_lost":
                        tp.mul(1 - args.tau).add(args.tau * p)
                    else:
                        tp.mul_(1 - args.tau).add_(args.tau * p)

        if time.time() - last_print > 3:
            last_print = time.time()
            mean = np.mean(returns[-5:]) if returns else float("nan")
            print(f"step={global_step} return={mean:.1f} qf_loss={qf_loss.item():.3f} alpha={alpha:.4f}", flush=True)

    tenth = max(1, len(returns) // 10)
    print(f"episodes={len(returns)} first={np.mean(returns[:tenth]):.1f} last={np.mean(returns[-tenth:]):.1f}")
