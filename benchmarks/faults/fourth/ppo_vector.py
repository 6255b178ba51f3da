"""PPO on a small courier grid world, with eight environments stepped together."""

import argparse
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from torch.distributions import Categorical

FAULTS = {
    "reset_steps": ["returns", "broken", "the dummy reset steps of next-step autoreset are kept as training samples"],
    "heads_only": ["weights", "broken", "the shared trunk is left out of the optimizer, only the two heads train"],
    "optimistic": [
        "signs",
        "broken",
        "minimum instead of maximum of the negated surrogates, so the clip is turned round",
    ],
    "value_column": ["shapes", "broken", "values of shape (N, 1) against returns of shape (N,), an (N, N) value loss"],
    "anneal_fast": ["rates", "broken", "schedule sized in rollouts but stepped once per minibatch: zero rate early"],
    "loiter": ["goal", "not proven", "the step cost was entered as a bonus, so that staying out beats delivering"],
}
HEALTHY = {
    "": "plain",
    "same_step": "same-step autoreset, the last observation of an episode taken from final_obs",
    "warmup": "learning rate warms up from exactly 0 over the first ten rollouts",
    "accumulate": "each minibatch is done in two halves whose gradients are accumulated before one step",
}
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])


class Courier(gym.Env):
    """Walk to the customer on a 7 x 7 board without stepping into a hole."""

    def __init__(self, step_reward=-0.02, size=7, holes=7):
        self.size, self.holes, self.step_reward = size, holes, step_reward
        self.action_space = gym.spaces.Discrete(4)
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (12,), np.float32)

    def _obs(self):
        around = self.pos + MOVES
        wall = ((around < 0) | (around >= self.size)).any(1)
        hole = [tuple(c) in self.pits for c in around]
        there = (self.goal - self.pos) / self.size
        here = 2.0 * self.pos / (self.size - 1) - 1.0
        return np.concatenate([there, here, wall, hole]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        cells = self.np_random.choice(self.size**2, self.holes + 2, replace=False)
        cells = np.stack([cells // self.size, cells % self.size], 1)
        self.pos, self.goal, self.pits = cells[0], cells[1], {tuple(c) for c in cells[2:]}
        return self._obs(), {}

    def step(self, action):
        self.pos = np.clip(self.pos + MOVES[action], 0, self.size - 1)
        reward, terminated = self.step_reward, False
        if tuple(self.pos) in self.pits:
            reward, terminated = -1.0, True
        elif (self.pos == self.goal).all():
            reward, terminated = 1.0, True
        return self._obs(), reward, terminated, False, {}


class Agent(nn.Module):
    def __init__(self, n_obs, n_act, hidden=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor = nn.Linear(hidden, n_act)
        self.critic = nn.Linear(hidden, 1)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight, {n_act: 0.01, 1: 1.0}.get(layer.out_features, 2**0.5))
                nn.init.zeros_(layer.bias)

    def get_value(self, x):
        return self.critic(self.trunk(x))

    def get_action_and_value(self, x, action=None):
        h = self.trunk(x)
        dist = Categorical(logits=self.actor(h))
        action = dist.sample() if action is None else action
        return action, dist.log_prob(action), dist.entropy(), self.critic(h)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--steps", type=int, default=60_000)
    p.add_argument("--fault", default="", choices=["", *FAULTS])
    p.add_argument("--variant", default="", choices=list(HEALTHY))
    args = p.parse_args()
    n_envs, n_steps, n_epochs, n_mini = 8, 64, 4, 4
    lr, gamma, lam, clip, ent_coef, vf_coef, max_norm = 1e-3, 0.98, 0.95, 0.2, 0.01, 0.5, 0.5
    n_rollouts = max(1, args.steps // (n_envs * n_steps))
    same_step = args.variant == "same_step"

    torch.manual_seed(args.seed)
    step_reward = 0.05 if args.fault == "loiter" else -0.02
    envs = SyncVectorEnv(
        [lambda: TimeLimit(Courier(step_reward), 40) for _ in range(n_envs)],
        autoreset_mode=AutoresetMode.SAME_STEP if same_step else AutoresetMode.NEXT_STEP,
    )
    n_obs = envs.single_observation_space.shape[0]
    agent = Agent(n_obs, envs.single_action_space.n)
    params = list(agent.parameters())
    if args.fault == "heads_only":
        params = [*agent.actor.parameters(), *agent.critic.parameters()]
    optimizer = torch.optim.Adam(params, lr=lr, eps=1e-5)
    warm = 10 if args.variant == "warmup" else 0
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: max(0.0, 1.0 - k / n_rollouts) * (min(1.0, k / warm) if warm else 1.0)
    )

    obs = torch.zeros(n_steps, n_envs, n_obs)
    next_observations = torch.zeros(n_steps, n_envs, n_obs)
    actions = torch.zeros(n_steps, n_envs, dtype=torch.long)
    logprobs, rewards, values = (torch.zeros(n_steps, n_envs) for _ in range(3))
    terminals, dones, valid = (torch.zeros(n_steps, n_envs) for _ in range(3))

    x, _ = envs.reset(seed=args.seed)
    was_done, running = np.zeros(n_envs, bool), np.zeros(n_envs)
    finished, recent, shown, start = [], deque(maxlen=200), time.time(), time.process_time()
    for rollout in range(n_rollouts):
        for t in range(n_steps):
            obs[t] = torch.as_tensor(x)
            with torch.no_grad():
                actions[t], logprobs[t], _, value = agent.get_action_and_value(obs[t])
            values[t] = value.flatten()
            x, r, term, trunc, info = envs.step(actions[t].numpy())
            done = term | trunc
            after = x.copy()
            if same_step and done.any():
                after[done] = np.stack(info["final_obs"][done])
            next_observations[t] = torch.as_tensor(after)
            rewards[t] = torch.as_tensor(r, dtype=torch.float32)
            terminals[t], dones[t] = torch.as_tensor(term).float(), torch.as_tensor(done).float()
            # with next-step autoreset the call after an episode's end only resets: its action does nothing
            real = np.ones(n_envs, bool) if same_step or args.fault == "reset_steps" else ~was_done
            valid[t] = torch.as_tensor(real).float()
            running += r
            recent.extend(running[done])
            finished.extend(running[done])
            running[done] = 0.0
            was_done = done

        with torch.no_grad():
            next_values = agent.get_value(next_observations).squeeze(-1)
            advantages, last = torch.zeros_like(rewards), torch.zeros(n_envs)
            for t in reversed(range(n_steps)):
                delta = rewards[t] + gamma * next_values[t] * (1.0 - terminals[t]) - values[t]
                advantages[t] = last = delta + gamma * lam * (1.0 - dones[t]) * last
            returns = advantages + values

        b_obs, b_act, b_logp = obs.flatten(0, 1), actions.flatten(), logprobs.flatten()
        b_adv, b_ret, b_val = advantages.flatten(), returns.flatten(), values.flatten()
        keep = valid.flatten().nonzero().squeeze(-1)
        for _ in range(n_epochs):
            for mb in keep[torch.randperm(len(keep))].chunk(n_mini):
                adv_all = (b_adv - b_adv[mb].mean()) / (b_adv[mb].std() + 1e-8)
                optimizer.zero_grad()
                for part in mb.chunk(2) if args.variant == "accumulate" else [mb]:
                    _, logp, entropy, v = agent.get_action_and_value(b_obs[part], b_act[part])
                    if args.fault != "value_column":
                        v = v.view(-1)
                    ratio = (logp - b_logp[part]).exp()
                    pg1 = -adv_all[part] * ratio
                    pg2 = -adv_all[part] * ratio.clamp(1 - clip, 1 + clip)
                    worse = torch.min if args.fault == "optimistic" else torch.max
                    pg_loss = worse(pg1, pg2).mean()
                    v_clip = b_val[part] + (v - b_val[part]).clamp(-clip, clip)
                    v_loss = 0.5 * torch.max((v - b_ret[part]) ** 2, (v_clip - b_ret[part]) ** 2).mean()
                    loss = pg_loss + vf_coef * v_loss - ent_coef * entropy.mean()
                    (loss * (len(part) / len(mb))).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), max_norm)
                optimizer.step()
                if args.fault == "anneal_fast":
                    schedule.step()
        if args.fault != "anneal_fast":
            schedule.step()
        if time.time() - shown > 2.0:
            shown = time.time()
            print(
                f"step {(rollout + 1) * n_steps * n_envs:7d}  return {np.mean(recent):+.3f}  "
                f"value loss {v_loss.item():.3f}  entropy {entropy.mean().item():.3f}",
                flush=True,
            )
    tenth = max(1, len(finished) // 10)
    print(
        f"episodes {len(finished)}  first tenth {np.mean(finished[:tenth]):+.3f}  last tenth "
        f"{np.mean(finished[-tenth:]):+.3f}  cpu {time.process_time() - start:.1f}s"
    )


if __name__ == "__main__":
    main()
