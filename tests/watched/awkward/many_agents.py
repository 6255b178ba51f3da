"""Several agents with critics and targets, each with optimizers of its own, in one environment of two players."""

import copy

import gymnasium
import torch
from little_training import random_states, weights
from torch import nn


class Duel(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({name: gymnasium.spaces.Box(-1, 1, (3,)) for name in ("left", "right")})
    action_space = gymnasium.spaces.Dict({name: gymnasium.spaces.Discrete(2) for name in ("left", "right")})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, actions):
        self.steps += 1
        reward = 1.0 if actions["left"] == actions["right"] else -1.0
        return self._seen(), {"left": reward, "right": -reward}, {"left": False, "right": False}, self.steps == 9, {}

    def _seen(self):
        return {name: self.np_random.uniform(-1, 1, 3).astype("float32") for name in ("left", "right")}


class Agent:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.actor = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        self.critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=0.01)
        self.critic_optimizer = torch.optim.RMSprop(self.critic.parameters(), lr=0.01)

    def act(self, observation):
        distribution = torch.distributions.Categorical(logits=self.actor(torch.as_tensor(observation)))
        action = distribution.sample()
        return action.item(), distribution.log_prob(action)

    def learn(self, observation, log_prob, reward, following):
        with torch.no_grad():
            goal = reward + 0.9 * self.target(torch.as_tensor(following))
        value = self.critic(torch.as_tensor(observation))
        self.critic_optimizer.zero_grad()
        (value - goal).pow(2).mean().backward()
        self.critic_optimizer.step()
        self.actor_optimizer.zero_grad()
        (-log_prob * (goal - value.detach()).squeeze()).backward()
        self.actor_optimizer.step()
        for slow, fast in zip(self.target.parameters(), self.critic.parameters(), strict=True):
            slow.data.mul_(0.95).add_(0.05 * fast.data)


agents = {"left": Agent(1), "right": Agent(2)}
env = Duel()
observations, _ = env.reset(seed=0)
for _ in range(30):
    chosen = {name: agent.act(observations[name]) for name, agent in agents.items()}
    following, rewards, _, cut, _ = env.step({name: action for name, (action, _) in chosen.items()})
    for name, agent in agents.items():
        agent.learn(observations[name], chosen[name][1], rewards[name], following[name])
    observations = env.reset()[0] if cut else following
for name, agent in agents.items():
    print(name, weights(agent.actor), weights(agent.critic), weights(agent.target))
print(random_states()[2])
