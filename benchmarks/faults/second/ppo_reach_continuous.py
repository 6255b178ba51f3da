# PPO with continuous actions on a small reaching task, in the single-file manner.
# python ppo_reach_continuous.py --seed 1 --steps 48000
import argparse
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.normal import Normal

FAULTS = {
    "stored_clipped": ["shapes", "broken", "the clipped action is stored, the stored log-prob is of the unclipped one"],
    "logp_per_dim": ["shapes", "broken", "log-probs not summed over action dimensions, one ratio per dimension"],
    "sched_per_minibatch": [
        "rates",
        "broken",
        "schedule sized in iterations is stepped per minibatch, rate 0 early on",
    ],
    "clip_one_group": ["rates", "broken", "gradient clipping covers the actor's parameter group only"],
    "wrong_last_obs": ["returns", "broken", "bootstraps from the last stored observation instead of the one after it"],
    "raw_in_buffer": ["shapes", "broken", "acts on normalised observations, stores and trains on raw ones"],
    "loose_log_std": ["weights", "broken", "log_std is a plain tensor, gets gradients but is in no optimizer"],
    "abs_progress": [
        "goal",
        "not proven",
        "the environment pays for the absolute change of distance, jitter is paid as well",
    ],
}
HEALTHY = {
    "": "plain",
    "squash": "tanh-squashed Gaussian with the Jacobian term, the pre-squash sample is stored",
    "fixed_std": "the exploration width is annealed by hand and not trained",
    "warmup": "learning rates start from 0",
    "value_norm": "the critic predicts standardised returns with running statistics",
}


class PlanarReach(gym.Env):
    """Point mass in the plane. Observation (in mm): position, velocity, goal. Leaving the plate ends the episode."""

    def __init__(self, jitter_bug=False):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.jitter_bug = jitter_bug

    def _get_obs(self):
        return np.concatenate([self.pos * 100.0, self.vel * 100.0, self.goal * 100.0]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.np_random.uniform(-1, 1, 2)
        self.goal = self.np_random.uniform(-1, 1, 2)
        self.vel = np.zeros(2)
        return self._get_obs(), {}

    def step(self, action):
        before = np.linalg.norm(self.pos - self.goal)
        self.vel = 0.8 * self.vel + 0.04 * np.clip(action, -1, 1)
        self.pos = self.pos + self.vel
        after = np.linalg.norm(self.pos - self.goal)
        progress = before - after
        if self.jitter_bug:
            progress = abs(progress)
        close, fell = bool(after < 0.2), bool(np.abs(self.pos).max() > 1.5)
        reward = 3.0 * progress + (0.1 if close else 0.0) - (3.0 if fell else 0.0)
        return self._get_obs(), float(reward), fell, False, {"is_success": close}


gym.register(id="PlanarReach-v0", entry_point=PlanarReach, max_episode_steps=40)


class RunningMeanStd:
    def __init__(self, shape=()):
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, x):
        m, v, n = x.mean(0), x.var(0), len(x)
        delta, total = m - self.mean, self.count + n
        self.mean = self.mean + delta * n / total
        self.var = (self.var * self.count + v * n + delta**2 * self.count * n / total) / total
        self.count = total

    def __call__(self, x):
        return np.clip((x - self.mean) / np.sqrt(self.var + 1e-8), -8, 8).astype(np.float32)


def layer(i, o, gain=2**0.5):
    lin = nn.Linear(i, o)
    nn.init.orthogonal_(lin.weight, gain)
    nn.init.zeros_(lin.bias)
    return lin


class Agent(nn.Module):
    def __init__(self, obs_dim, act_dim, args):
        super().__init__()
        self.squash = args.variant == "squash"
        self.mu = nn.Sequential(layer(obs_dim, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, act_dim, 0.01))
        self.vf = nn.Sequential(layer(obs_dim, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
        if args.fault == "loose_log_std":
            self.log_std = torch.full((act_dim,), -0.5, requires_grad=True)
        else:
            self.log_std = nn.Parameter(torch.full((act_dim,), -0.5), requires_grad=args.variant != "fixed_std")

    def value(self, x):
        return self.vf(x).squeeze(-1)

    def dist(self, x):
        mean = self.mu(x)
        return Normal(mean, self.log_std.exp().expand_as(mean))

    def logp(self, dist, u):
        lp = dist.log_prob(u)
        if self.squash:
            lp = lp - 2.0 * (np.log(2.0) - u - nn.functional.softplus(-2.0 * u))
        return lp

    def actor_parameters(self):
        ps = list(self.mu.parameters())
        if isinstance(self.log_std, nn.Parameter) and self.log_std.requires_grad:
            ps.append(self.log_std)
        return ps


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=48_000)
    parser.add_argument("--fault", default="")
    parser.add_argument("--variant", default="")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--minibatch", type=int, default=128)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--lam", type=float, default=0.95)
    parser.add_argument("--ent-coef", type=float, default=0.001)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    args = parser.parse_args()
    N, T = args.num_envs, args.num_steps
    iterations = max(1, args.steps // (N * T))

    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    def make():
        return gym.make("PlanarReach-v0", disable_env_checker=True, jitter_bug=args.fault == "abs_progress")

    # the reset happens inside step(); the last observation of an episode is in infos["final_obs"]
    envs = gym.vector.SyncVectorEnv([make] * N, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    obs_dim, act_dim = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]

    agent = Agent(obs_dim, act_dim, args)
    optimizer = torch.optim.Adam(
        [
            {"params": agent.actor_parameters(), "lr": 3e-4},
            {"params": agent.vf.parameters(), "lr": 1e-3},
        ],
        eps=1e-5,
    )

    def lr_factor(k):
        f = max(0.0, 1.0 - k / iterations)
        if args.variant == "warmup":
            f *= min(1.0, k / 10)
        return f

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)

    obs_rms, ret_rms = RunningMeanStd((obs_dim,)), RunningMeanStd()

    def values_of(x):
        v = agent.value(x)
        if args.variant == "value_norm":
            v = v * float(np.sqrt(ret_rms.var + 1e-8)) + float(ret_rms.mean)
        return v

    obs_buf = torch.zeros(T, N, obs_dim)
    act_buf = torch.zeros(T, N, act_dim)
    logp_buf = torch.zeros(T, N, act_dim) if args.fault == "logp_per_dim" else torch.zeros(T, N)
    rew_buf, end_buf, val_buf = torch.zeros(T, N), torch.zeros(T, N), torch.zeros(T, N)

    returns_seen, successes = [], []
    raw, _ = envs.reset(seed=args.seed)
    obs_rms.update(raw)
    start = time.time()
    for it in range(iterations):
        if args.variant == "fixed_std":
            agent.log_std.data.fill_(-0.5 - 1.0 * it / iterations)

        for t in range(T):
            obs = torch.from_numpy(obs_rms(raw))
            with torch.no_grad():
                d = agent.dist(obs)
                u = d.sample()
                lp = agent.logp(d, u)
                val_buf[t] = values_of(obs)
            logp_buf[t] = lp if args.fault == "logp_per_dim" else lp.sum(-1)
            env_action = torch.tanh(u) if agent.squash else u.clamp(-1, 1)
            obs_buf[t] = torch.from_numpy(raw) if args.fault == "raw_in_buffer" else obs
            act_buf[t] = env_action if args.fault == "stored_clipped" else u

            raw, rew, term, trunc, infos = envs.step(env_action.numpy())
            rew = torch.from_numpy(rew).float()
            if trunc.any():
                # cut off by the time limit, not finished: add the value of what would have come next
                for i in np.flatnonzero(trunc & ~term):
                    last = torch.from_numpy(obs_rms(infos["final_obs"][i]))
                    with torch.no_grad():
                        rew[i] += args.gamma * values_of(last[None])[0]
            rew_buf[t] = rew
            end_buf[t] = torch.from_numpy(term | trunc).float()
            obs_rms.update(raw)
            if "episode" in infos:
                returns_seen.extend(infos["episode"]["r"][infos["_episode"]].tolist())
                successes.extend(infos["final_info"]["is_success"][infos["_episode"]].tolist())

        # GAE
        with torch.no_grad():
            if args.fault == "wrong_last_obs":
                next_value = values_of(obs_buf[-1])
            else:
                next_value = values_of(torch.from_numpy(obs_rms(raw)))
            adv = torch.zeros(T, N)
            running = torch.zeros(N)
            for t in reversed(range(T)):
                nv = next_value if t == T - 1 else val_buf[t + 1]
                delta = rew_buf[t] + args.gamma * nv * (1 - end_buf[t]) - val_buf[t]
                running = delta + args.gamma * args.lam * (1 - end_buf[t]) * running
                adv[t] = running
            ret = adv + val_buf
        if args.variant == "value_norm":
            ret_rms.update(ret.numpy().reshape(-1).astype(np.float64))
            ret = (ret - float(ret_rms.mean)) / float(np.sqrt(ret_rms.var + 1e-8))

        b_obs, b_act = obs_buf.reshape(-1, obs_dim), act_buf.reshape(-1, act_dim)
        b_logp, b_adv, b_ret = logp_buf.flatten(0, 1), adv.reshape(-1), ret.reshape(-1)
        ent_coef = 0.0 if agent.squash or args.variant == "fixed_std" else args.ent_coef
        for _epoch in range(args.epochs):
            for mb in torch.randperm(N * T).split(args.minibatch):
                d = agent.dist(b_obs[mb])
                lp = agent.logp(d, b_act[mb])
                a = (b_adv[mb] - b_adv[mb].mean()) / (b_adv[mb].std() + 1e-8)
                if args.fault == "logp_per_dim":
                    a = a[:, None]
                else:
                    lp = lp.sum(-1)
                ratio = (lp - b_logp[mb]).exp()
                pg_loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
                v_loss = 0.5 * (agent.value(b_obs[mb]) - b_ret[mb]).pow(2).mean()
                entropy = d.entropy().sum(-1).mean()
                loss = pg_loss + 0.5 * v_loss - ent_coef * entropy
                optimizer.zero_grad()
                loss.backward()
                for group in optimizer.param_groups[:1] if args.fault == "clip_one_group" else optimizer.param_groups:
                    nn.utils.clip_grad_norm_(group["params"], args.max_grad_norm)
                optimizer.step()
                if args.fault == "sched_per_minibatch":
                    scheduler.step()
        if args.fault != "sched_per_minibatch":
            scheduler.step()

        if it % 15 == 0 or it == iterations - 1:
            print(
                f"it {it:4d} return {np.mean(returns_seen[-50:]):7.3f} success {np.mean(successes[-50:]):.2f} "
                f"vloss {v_loss.item():.3f} std {agent.log_std.exp().mean().item():.3f} "
                f"sps {int((it + 1) * N * T / (time.time() - start))}",
                flush=True,
            )

    envs.close()
    k = max(1, len(returns_seen) // 5)
    print(f"return first fifth {np.mean(returns_seen[:k]):.3f} last fifth {np.mean(returns_seen[-k:]):.3f}")
