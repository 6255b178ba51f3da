"""A loop of very many small updates with an environment and a target network, for measuring what watching leaves in memory."""

import argparse
import copy

import gymnasium as gym
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--updates", type=int, default=100_000)
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
target = copy.deepcopy(network)
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
env = gym.make("CartPole-v1")
observation, _ = env.reset(seed=0)
rows = []
for update in range(options.updates):
    following, reward, terminated, truncated, _ = env.step(update % 2)
    rows = [*rows[-31:], (observation, update % 2, reward, terminated, following)]
    observation = env.reset()[0] if terminated or truncated else following
    states, actions, rewards, ends, nexts = (torch.tensor([row[i] for row in rows]) for i in range(5))
    with torch.no_grad():
        goal = rewards + 0.99 * target(nexts).max(1).values * ~ends
    loss = torch.nn.functional.smooth_l1_loss(network(states).gather(1, actions[:, None]).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 100 == 0:
        target.load_state_dict(network.state_dict())
