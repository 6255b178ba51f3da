"""PPO on CartPole in one flat file: vector environments, GAE, a shared trunk with two heads."""

import argparse
import copy
import random
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

FAULTS = {
    "entropy_sign": ["signs", "broken", "the entropy bonus is added to the loss that is minimised (SB3 #130)"],
    "time_limit": ["returns", "broken", "an episode cut at 500 steps counts as terminal (CleanRL #457)"],
    "dones_shifted": ["returns", "broken", "GAE reads the done flag one step too early (SB3 #110)"],
    "last_value": ["returns", "broken", "bootstraps from the last stored state, not the one after it (SB3 #185)"],
    "value_broadcast": ["shapes", "broken", "(N,1) values against (N,) returns give an (N,N) loss (CleanRL #383)"],
    "anneal_early": ["rates", "broken", "schedule sized in rollouts, stepped per minibatch (open-instruct #537)"],
    "trunk_left_out": ["weights", "broken", "the shared trunk is in no optimizer (genrl #315)"],
    "clip_one_group": ["rates", "broken", "only the first of the two parameter groups has its gradient clipped"],
}
HEALTHY = {
    "": "plain",
    "warmup": "learning rate warmed up from 0 over the first rollouts",
    "accumulate": "each minibatch is two micro-batches whose gradients accumulate",
    "ema": "a moving average of the weights is kept beside the model and evaluated at the end",
}

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=60_000)
parser.add_argument("--fault", default="", choices=["", *FAULTS])
parser.add_argument("--variant", default="", choices=[*HEALTHY])
args = parser.parse_args()

num_envs, num_steps, num_minibatches, update_epochs = 8, 128, 8, 6
learning_rate, gamma, gae_lambda = 1e-3, 0.98, 0.95
clip_coef, ent_coef, vf_coef, max_grad_norm = 0.2, 0.01, 0.02, 0.5
batch_size = num_envs * num_steps
minibatch_size = batch_size // num_minibatches
num_iterations = max(1, args.steps // batch_size)

random.seed(args.seed)
rng = np.random.default_rng(args.seed)
torch.manual_seed(args.seed)
torch.set_num_threads(1)


def layer_init(layer, std=1.414):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, 0.0)
    return layer


class Agent(nn.Module):
    def __init__(self, obs_size, n_actions):
        super().__init__()
        self.trunk = nn.Sequential(
            layer_init(nn.Linear(obs_size, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh()
        )
        self.actor = layer_init(nn.Linear(64, n_actions), std=0.01)
        self.critic = layer_init(nn.Linear(64, 1), std=1.0)

    def get_value(self, x):
        return self.critic(self.trunk(x))

    def get_action_and_value(self, x, action=None):
        hidden = self.trunk(x)
        dist = Categorical(logits=self.actor(hidden))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action), dist.entropy(), self.critic(hidden)


envs = gym.vector.SyncVectorEnv(
    [lambda: gym.make("CartPole-v1") for _ in range(num_envs)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
)
agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
policy_group = [*agent.trunk.parameters(), *agent.actor.parameters()]
if args.fault == "trunk_left_out":
    policy_group = [*agent.actor.parameters()]
optimizer = torch.optim.Adam(
    [{"params": policy_group}, {"params": [*agent.critic.parameters()]}], lr=learning_rate, eps=1e-5
)
warm = 5 if args.variant == "warmup" else 0
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda k: k / warm if k < warm else max(0.0, 1.0 - (k - warm) / num_iterations)
)
averaged = copy.deepcopy(agent) if args.variant == "ema" else None

obs = torch.zeros((num_steps, num_envs, *envs.single_observation_space.shape))
actions = torch.zeros((num_steps, num_envs))
logprobs = torch.zeros((num_steps, num_envs))
rewards = torch.zeros((num_steps, num_envs))
dones = torch.zeros((num_steps, num_envs))
values = torch.zeros((num_steps, num_envs))

start = time.process_time()
finished, running, episodes = deque(maxlen=40), np.zeros(num_envs), []
next_obs, _ = envs.reset(seed=args.seed)
next_obs, next_done = torch.as_tensor(next_obs), torch.zeros(num_envs)

for iteration in range(1, num_iterations + 1):
    for step in range(num_steps):
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
        actions[step], logprobs[step], values[step] = action, logprob, value.flatten()

        state, reward, terminated, truncated, infos = envs.step(action.numpy())
        rewards[step] = torch.as_tensor(reward, dtype=torch.float32)
        if args.fault != "time_limit":
            for i in np.flatnonzero(truncated & ~terminated):
                with torch.no_grad():
                    cut = agent.get_value(torch.as_tensor(infos["final_obs"][i])).item()
                rewards[step, i] += gamma * cut
        done = terminated | truncated
        next_obs, next_done = torch.as_tensor(state), torch.as_tensor(done, dtype=torch.float32)
        running += reward
        for i in np.flatnonzero(done):
            finished.append(running[i])
            episodes.append(running[i])
            running[i] = 0.0

    with torch.no_grad():
        after = obs[-1] if args.fault == "last_value" else next_obs
        next_value = agent.get_value(after).flatten()
        advantages = torch.zeros_like(rewards)
        lastgaelam = torch.zeros(num_envs)
        for t in reversed(range(num_steps)):
            if t == num_steps - 1:
                nonterminal, nextvalues = 1.0 - next_done, next_value
            else:
                nonterminal, nextvalues = 1.0 - dones[t + 1], values[t + 1]
            if args.fault == "dones_shifted":
                nonterminal = 1.0 - dones[t]
            delta = rewards[t] + gamma * nextvalues * nonterminal - values[t]
            advantages[t] = lastgaelam = delta + gamma * gae_lambda * nonterminal * lastgaelam
        returns = advantages + values

    b_obs = obs.reshape(-1, *envs.single_observation_space.shape)
    b_actions, b_logprobs = actions.reshape(-1), logprobs.reshape(-1)
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
    micro = 2 if args.variant == "accumulate" else 1

    for _epoch in range(update_epochs):
        order = rng.permutation(batch_size)
        for begin in range(0, batch_size, minibatch_size):
            optimizer.zero_grad()
            minibatch = order[begin : begin + minibatch_size]
            scale = b_advantages[minibatch].std() + 1e-8
            centre = b_advantages[minibatch].mean()
            for mb in np.array_split(minibatch, micro):
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb], b_actions[mb])
                ratio = (newlogprob - b_logprobs[mb]).exp()
                mb_adv = (b_advantages[mb] - centre) / scale
                pg_loss = torch.max(-mb_adv * ratio, -mb_adv * ratio.clamp(1 - clip_coef, 1 + clip_coef)).mean()
                if args.fault != "value_broadcast":
                    newvalue = newvalue.view(-1)
                v_loss = 0.5 * ((newvalue - b_returns[mb]) ** 2).mean()
                bonus = ent_coef * entropy.mean()
                loss = pg_loss + vf_coef * v_loss + (bonus if args.fault == "entropy_sign" else -bonus)
                (loss / micro).backward()
            if args.fault == "clip_one_group":
                nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], max_grad_norm)
            else:
                nn.utils.clip_grad_norm_(agent.parameters(), max_grad_norm)
            optimizer.step()
            if args.fault == "anneal_early":
                scheduler.step()
            if averaged is not None:
                with torch.no_grad():
                    for slow, fast in zip(averaged.parameters(), agent.parameters(), strict=True):
                        slow.lerp_(fast, 0.02)
    if args.fault != "anneal_early":
        scheduler.step()
    if iteration % 10 == 0 and finished:
        print(f"step {iteration * batch_size:6d}  return {np.mean(finished):6.1f}  entropy {entropy.mean():.3f}")

if averaged is not None:
    env = gym.make("CartPole-v1")
    total = 0.0
    for k in range(5):
        state, _ = env.reset(seed=1000 + args.seed + k)
        over = False
        while not over:
            choice = averaged.actor(averaged.trunk(torch.as_tensor(state))).argmax().item()
            state, reward, terminated, truncated, _ = env.step(choice)
            total, over = total + reward, terminated or truncated
    print(f"averaged weights, greedy: {total / 5:.1f}")
envs.close()
early = np.mean(episodes[:20]) if episodes else float("nan")
late = np.mean(episodes[-20:]) if episodes else float("nan")
print(f"done: first 20 episodes {early:.1f}, last 20 {late:.1f}, cpu {time.process_time() - start:.1f}s")
