"""PPO for continuous actions: an agent class with its own optimizers for actor and critic, on Pendulum."""

import argparse
import random
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

FAULTS = {
    "swapped_optimizers": ["weights", "broken", "actor and critic optimizers swapped: nothing moves (genrl a2c)"],
    "log_std_left_out": ["weights", "broken", "the trainable log_std is in no optimizer"],
    "time_limit": ["returns", "broken", "every episode ends by its time limit, taken as terminal (skrl #449)"],
    "logprob_column": ["shapes", "broken", "per-dimension log-probs not summed: (N,1) ratio times (N,) advantage"],
    "dropout_rollout": ["shapes", "broken", "dropout active in rollouts: the stored log-probs are noisy (SB3 #537)"],
    "clipped_stored": ["goal", "broken", "stores the clipped action, the log-prob of the raw one (Tianshou #312)"],
    "missing_minus": ["signs", "broken", "the surrogate is minimised instead of maximised"],
    "reward_sign": ["goal", "not proven", "the reward is negated on its way in: hanging down is rewarded"],
    "frozen_view": ["goal", "not proven", "the observation is that of the episode's start at every step"],
}
HEALTHY = {
    "": "plain; rewards are always negative",
    "alternating": "two optimizers take turns: critic in even epochs, actor in odd ones",
    "weight_decay": "AdamW with weight decay on both networks",
}


class FrozenView(gym.ObservationWrapper):
    def reset(self, **kwargs):
        self.view = None
        return super().reset(**kwargs)

    def observation(self, observation):
        if self.view is None:
            self.view = observation
        return self.view


def gae(rewards, values, next_values, terminated, ended, gamma, lam):
    """All arrays (T, n_envs); next_values[t] is the value of the state that step t led to."""
    advantages = np.zeros_like(rewards)
    running = np.zeros(rewards.shape[1])
    for t in range(len(rewards) - 1, -1, -1):
        delta = rewards[t] + gamma * next_values[t] * (1.0 - terminated[t]) - values[t]
        running = delta + gamma * lam * (1.0 - ended[t]) * running
        advantages[t] = running
    return advantages


class GaussianActor(nn.Module):
    def __init__(self, n_obs, n_act, dropout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(n_obs, 64), nn.Tanh(), nn.Dropout(dropout), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_act)
        )
        self.log_std = nn.Parameter(torch.zeros(n_act))

    def forward(self, obs):
        return Normal(self.body(obs), self.log_std.exp())


class PPOAgent:
    n_envs, horizon, epochs, n_minibatches = 8, 256, 10, 16
    gamma, lam, clip = 0.9, 0.95, 0.2

    def __init__(self, seed, fault, variant):
        self.fault, self.variant = fault, variant
        mode = gym.vector.AutoresetMode.SAME_STEP
        self.envs = gym.vector.SyncVectorEnv([self.make_env] * self.n_envs, autoreset_mode=mode)
        self.high = float(self.envs.single_action_space.high[0])
        self.actor = GaussianActor(3, 1, dropout=0.1 if fault == "dropout_rollout" else 0.0)
        self.critic = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        actor_parameters, critic_parameters = list(self.actor.parameters()), list(self.critic.parameters())
        if fault == "log_std_left_out":
            actor_parameters = list(self.actor.body.parameters())
        if fault == "swapped_optimizers":
            actor_parameters, critic_parameters = critic_parameters, actor_parameters
        decay = 1e-2 if variant == "weight_decay" else 0.0
        self.actor_optimizer = torch.optim.AdamW(actor_parameters, lr=1e-3, weight_decay=decay)
        self.critic_optimizer = torch.optim.AdamW(critic_parameters, lr=1e-3, weight_decay=decay)
        self.observation, _ = self.envs.reset(seed=seed)
        self.episode_return = np.zeros(self.n_envs)
        self.history = []

    def make_env(self):
        env = gym.make("Pendulum-v1")
        if self.fault == "frozen_view":
            env = FrozenView(env)
        if self.fault == "reward_sign":
            env = gym.wrappers.TransformReward(env, lambda r: -r)
        return env

    @torch.no_grad()
    def value_of(self, observations):
        return self.critic(torch.as_tensor(observations, dtype=torch.float32)).squeeze(-1).numpy()

    def collect(self):
        keys = ("obs", "action", "logp", "reward", "value", "next_value", "terminated", "ended")
        rollout = {key: [] for key in keys}
        for _ in range(self.horizon):
            with torch.no_grad():
                policy = self.actor(torch.as_tensor(self.observation, dtype=torch.float32))
                action = policy.sample()
                logp = policy.log_prob(action).sum(-1)
            sent = action.clamp(-self.high, self.high)
            following, reward, terminated, truncated, info = self.envs.step(sent.numpy())
            ended = terminated | truncated
            reached = following.copy()
            for i in np.flatnonzero(ended):
                reached[i] = info["final_obs"][i]
            if self.fault == "time_limit":
                terminated = ended
            stored = sent if self.fault == "clipped_stored" else action
            row = (self.observation, stored.numpy(), logp.numpy(), reward * 0.1, self.value_of(self.observation))
            row += (self.value_of(reached), terminated.astype(float), ended.astype(float))
            for key, item in zip(keys, row, strict=True):
                rollout[key].append(item)
            self.episode_return += reward
            for i in np.flatnonzero(ended):
                self.history.append(self.episode_return[i])
                self.episode_return[i] = 0.0
            self.observation = following
        return {key: np.array(column) for key, column in rollout.items()}

    def learn(self, rollout):
        names = ("reward", "value", "next_value", "terminated", "ended")
        advantages = gae(*(rollout[name] for name in names), self.gamma, self.lam)
        flat = {key: torch.as_tensor(rollout[key], dtype=torch.float32).flatten(0, 1) for key in ("obs", "action")}
        old_logp = torch.as_tensor(rollout["logp"], dtype=torch.float32).flatten()
        returns = torch.as_tensor(advantages + rollout["value"], dtype=torch.float32).flatten()
        advantages = torch.as_tensor(advantages, dtype=torch.float32).flatten()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        for epoch in range(self.epochs):
            do_actor = self.variant != "alternating" or epoch % 2 == 1
            do_critic = self.variant != "alternating" or epoch % 2 == 0
            for index in torch.randperm(len(returns)).chunk(self.n_minibatches):
                if do_actor:
                    self.actor_step(flat["obs"][index], flat["action"][index], old_logp[index], advantages[index])
                if do_critic:
                    self.critic_step(flat["obs"][index], returns[index])

    def actor_step(self, obs, action, old_logp, advantage):
        logp = self.actor(obs).log_prob(action)
        if self.fault == "logprob_column":
            ratio = (logp - old_logp.unsqueeze(-1)).exp()
        else:
            ratio = (logp.sum(-1) - old_logp).exp()
        surrogate = torch.min(ratio * advantage, ratio.clamp(1 - self.clip, 1 + self.clip) * advantage).mean()
        loss = surrogate if self.fault == "missing_minus" else -surrogate
        self.actor_optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.actor.parameters(), 0.5)
        self.actor_optimizer.step()

    def critic_step(self, obs, returns):
        loss = nn.functional.mse_loss(self.critic(obs).squeeze(-1), returns)
        self.critic_optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.critic.parameters(), 0.5)
        self.critic_optimizer.step()

    def train(self, total_steps):
        per_rollout = self.n_envs * self.horizon
        for n in range(1, max(1, total_steps // per_rollout) + 1):
            self.learn(self.collect())
            if n % 5 == 0:
                std = self.actor.log_std.exp().item()
                print(f"[{n * per_rollout:7d}] return of last 20: {np.mean(self.history[-20:]):8.1f}   std {std:.2f}")
        self.envs.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    began = time.process_time()
    agent = PPOAgent(options.seed, options.fault, options.variant)
    agent.train(options.steps)
    first, last = np.mean(agent.history[:20]), np.mean(agent.history[-20:])
    print(f"finished: first 20 episodes {first:.1f}, last 20 {last:.1f} ({time.process_time() - began:.1f} cpu s)")


if __name__ == "__main__":
    main()
