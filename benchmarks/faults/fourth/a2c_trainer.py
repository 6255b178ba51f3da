"""Advantage actor-critic on CartPole: several environments in a list, n-step rollouts, two networks."""

import argparse
import copy
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

FAULTS = {
    "head_replaced": ["weights", "broken", "the critic's head is re-made after its optimizer, so that it never moves"],
    "done_before_step": ["returns", "broken", "the done flag of the step before cuts the return, not the step's own"],
    "flatten_order": ["shapes", "broken", "returns are flattened env by env, everything else step by step"],
    "advantage_leak": ["signs", "broken", "the advantage is not detached: the policy loss pushes the critic upwards"],
    "schedule_per_step": [
        "rates",
        "broken",
        "the decay is sized in updates but counted in steps: zero rate very early",
    ],
    "fixed_length": ["goal", "not proven", "the wrapper hides falls and pays 1 always: every policy earns the maximum"],
}
HEALTHY = {
    "": "plain",
    "accumulate": "gradients of two rollouts are gathered (each halved) before a step",
    "critic_first": "the actor rests during the first 80 updates until the critic has warmed up",
    "averaged": "a moving average of the actor is kept beside it and used for evaluation only",
}


class FixedLength(gym.Wrapper):
    """Episodes of one length are easier to stack."""

    def step(self, action):
        obs, _, _, truncated, info = self.env.step(action)
        return obs, 1.0, False, truncated, info


def make_env(fault):
    env = gym.make("CartPole-v1", max_episode_steps=200)
    return FixedLength(env) if fault == "fixed_length" else env


def mlp(n_in, n_out, gain):
    layers = [nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out)]
    for layer in layers[::2]:
        nn.init.orthogonal_(layer.weight, 2**0.5)
        nn.init.zeros_(layer.bias)
    nn.init.orthogonal_(layers[-1].weight, gain)
    return nn.Sequential(*layers)


class Trainer:
    def __init__(self, args, n_envs=8, n_steps=16, gamma=0.98, lr=1e-3, ent_coef=0.005, max_norm=0.5):
        self.fault, self.variant = args.fault, args.variant
        self.n_envs, self.n_steps, self.gamma = n_envs, n_steps, gamma
        self.lr, self.ent_coef, self.max_norm = lr, ent_coef, max_norm
        self.envs = [make_env(self.fault) for _ in range(n_envs)]
        self.eval_env = make_env(self.fault)
        self.obs = np.stack([env.reset(seed=args.seed * 1000 + i)[0] for i, env in enumerate(self.envs)])
        self.eval_env.reset(seed=args.seed * 1000 + 999)
        self.running = np.zeros(n_envs)
        self.last_done = np.zeros(n_envs, dtype=np.float32)
        self.history, self.recent = [], deque(maxlen=40)
        n_obs, n_act = self.envs[0].observation_space.shape[0], self.envs[0].action_space.n
        self.actor, self.critic = mlp(n_obs, n_act, 0.01), mlp(n_obs, 1, 1.0)
        self.average = copy.deepcopy(self.actor)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=2 * lr)
        if self.fault == "head_replaced":
            self.critic[-1] = nn.Linear(64, 1)  # default initialisation suits the value better
        self.n_updates = args.steps // (n_envs * n_steps)
        self.updates = self.clock = 0

    def collect(self):
        obs_list, act_list, rew_list, done_list = [], [], [], []
        for _ in range(self.n_steps):
            with torch.no_grad():
                actions = Categorical(logits=self.actor(torch.as_tensor(self.obs))).sample()
            rewards = np.zeros(self.n_envs, dtype=np.float32)
            dones = np.zeros(self.n_envs, dtype=np.float32)
            next_obs = np.empty_like(self.obs)
            for i, env in enumerate(self.envs):
                ob, reward, terminated, truncated, _ = env.step(int(actions[i]))
                rewards[i] = reward
                self.running[i] += reward
                if truncated and not terminated:  # out of time, not out of luck: what would have come still counts
                    with torch.no_grad():
                        rewards[i] += self.gamma * self.critic(torch.as_tensor(ob)).item()
                if terminated or truncated:
                    dones[i] = 1.0
                    self.history.append(self.running[i])
                    self.recent.append(self.running[i])
                    self.running[i] = 0.0
                    ob, _ = env.reset()
                next_obs[i] = ob
            obs_list.append(self.obs)
            act_list.append(actions)
            rew_list.append(rewards)
            done_list.append(self.last_done if self.fault == "done_before_step" else dones)
            self.obs, self.last_done = next_obs, dones
            if self.fault == "schedule_per_step":
                self.clock += 1
        with torch.no_grad():
            ret = self.critic(torch.as_tensor(self.obs)).squeeze(-1).numpy()
        returns = np.zeros((self.n_steps, self.n_envs), dtype=np.float32)
        for t in reversed(range(self.n_steps)):
            ret = rew_list[t] + self.gamma * (1.0 - done_list[t]) * ret
            returns[t] = ret
        if self.fault == "flatten_order":
            returns = returns.T
        obs = torch.as_tensor(np.concatenate(obs_list))
        return obs, torch.cat(act_list), torch.as_tensor(returns.reshape(-1))

    def learn(self, obs, actions, returns):
        rate = max(0.0, 1.0 - self.clock / self.n_updates)
        for opt, base in ((self.actor_opt, self.lr), (self.critic_opt, 2 * self.lr)):
            for group in opt.param_groups:
                group["lr"] = base * rate
        dist = Categorical(logits=self.actor(obs))
        values = self.critic(obs).squeeze(-1)
        advantages = returns - (values if self.fault == "advantage_leak" else values.detach())
        policy_loss = -(dist.log_prob(actions) * advantages).mean()
        value_loss = (returns - values).pow(2).mean()
        loss = policy_loss - self.ent_coef * dist.entropy().mean() + 0.5 * value_loss
        rollouts = 2 if self.variant == "accumulate" else 1
        if self.updates % rollouts == 0:
            self.actor_opt.zero_grad()
            self.critic_opt.zero_grad()
        (loss / rollouts).backward()
        self.updates += 1
        if self.fault != "schedule_per_step":
            self.clock += 1
        if self.updates % rollouts == 0:
            nn.utils.clip_grad_norm_(self.actor.parameters(), self.max_norm)
            nn.utils.clip_grad_norm_(self.critic.parameters(), self.max_norm)
            if self.variant != "critic_first" or self.updates > 80:
                self.actor_opt.step()
            self.critic_opt.step()
        if self.variant == "averaged":
            with torch.no_grad():
                for slow, fast in zip(self.average.parameters(), self.actor.parameters(), strict=True):
                    slow.lerp_(fast, 0.02)
        return policy_loss.item(), value_loss.item(), dist.entropy().mean().item()

    @torch.no_grad()
    def evaluate(self, episodes=10):
        actor = self.average if self.variant == "averaged" else self.actor
        totals = []
        for _ in range(episodes):
            obs, done, total = self.eval_env.reset()[0], False, 0.0
            while not done:
                obs, reward, terminated, truncated, _ = self.eval_env.step(int(actor(torch.as_tensor(obs)).argmax()))
                total += reward
                done = terminated or truncated
            totals.append(total)
        return float(np.mean(totals))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=150_000)
    parser.add_argument("--fault", choices=["", *FAULTS], default="")
    parser.add_argument("--variant", choices=list(HEALTHY), default="")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    trainer = Trainer(args)
    shown = time.time()
    while trainer.updates < trainer.n_updates:
        policy_loss, value_loss, entropy = trainer.learn(*trainer.collect())
        if time.time() - shown > 2.0:
            shown = time.time()
            print(
                f"update {trainer.updates}/{trainer.n_updates} return {np.mean(trainer.recent):.1f} "
                f"pi {policy_loss:.3f} v {value_loss:.2f} entropy {entropy:.3f}",
                flush=True,
            )
    tenth = max(1, len(trainer.history) // 10)
    first, last = np.mean(trainer.history[:tenth]), np.mean(trainer.history[-tenth:])
    print(f"return: first tenth {first:.1f}, last tenth {last:.1f}; greedy evaluation {trainer.evaluate():.1f}")


if __name__ == "__main__":
    main()
