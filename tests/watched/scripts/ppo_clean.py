# ruff: noqa: NPY002
"""PPO in one file on CartPole, the way single-file collections write it: flags, one Agent, one long main block."""

import argparse
import hashlib
import json
import random

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--env-id", type=str, default="CartPole-v1")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=4)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    parser.add_argument("--ent-coef", type=float, default=0.01)
    parser.add_argument("--vf-coef", type=float, default=0.5)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    return parser.parse_args()


def make_env(env_id):
    def thunk():
        return gym.make(env_id)

    return thunk


def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, envs, hidden):
        super().__init__()
        inputs = int(np.prod(envs.single_observation_space.shape))
        self.critic = nn.Sequential(
            layer_init(nn.Linear(inputs, hidden)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden, hidden)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden, 1), std=1.0),
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(inputs, hidden)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden, hidden)),
            nn.Tanh(),
            layer_init(nn.Linear(hidden, envs.single_action_space.n), std=0.01),
        )

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        logits = self.actor(x)
        probs = Categorical(logits=logits)
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


if __name__ == "__main__":
    args = parse_args()
    torch.set_num_threads(1)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True

    envs = gym.vector.SyncVectorEnv([make_env(args.env_id) for _ in range(args.num_envs)])
    agent = Agent(envs, args.hidden)
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(shape + envs.single_observation_space.shape)
    actions = torch.zeros(shape + envs.single_action_space.shape)
    logprobs = torch.zeros(shape)
    rewards = torch.zeros(shape)
    terminations = torch.zeros(shape)
    dones = torch.zeros(shape)
    valid = torch.zeros(shape, dtype=torch.bool)
    values = torch.zeros(shape)

    global_step = 0
    optimizer_steps = 0
    env_steps = 0
    episode_returns = []
    running_return = np.zeros(args.num_envs)
    next_obs, _ = envs.reset(seed=args.seed)
    next_obs = torch.Tensor(next_obs)
    was_done = np.zeros(args.num_envs, dtype=bool)

    for update in range(1, args.updates + 1):
        frac = 1.0 - (update - 1.0) / args.updates
        optimizer.param_groups[0]["lr"] = frac * args.learning_rate

        for step in range(args.num_steps):
            global_step += args.num_envs
            obs[step] = next_obs
            # after the end of an episode the vector env spends one step on the reset alone: such a row is no experience
            valid[step] = torch.from_numpy(~was_done)
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step] = action
            logprobs[step] = logprob

            next_obs, reward, terminated, truncated, infos = envs.step(action.cpu().numpy())
            env_steps += 1
            done = np.logical_or(terminated, truncated)
            rewards[step] = torch.tensor(reward).view(-1)
            terminations[step] = torch.Tensor(terminated)
            dones[step] = torch.Tensor(done)
            next_obs = torch.Tensor(next_obs)
            for i in range(args.num_envs):
                if was_done[i]:
                    continue
                running_return[i] += reward[i]
                if done[i]:
                    episode_returns.append(float(running_return[i]))
                    running_return[i] = 0.0
            was_done = done

        # the row after an end holds the true last observation, so its value is what a cut-off episode goes on with
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(-1)
            advantages = torch.zeros_like(rewards)
            lastgaelam = torch.zeros(args.num_envs)
            for t in reversed(range(args.num_steps)):
                nextvalues = next_value if t == args.num_steps - 1 else values[t + 1]
                delta = rewards[t] + args.gamma * nextvalues * (1.0 - terminations[t]) - values[t]
                lastgaelam = delta + args.gamma * args.gae_lambda * (1.0 - dones[t]) * lastgaelam
                lastgaelam = lastgaelam * valid[t]
                advantages[t] = lastgaelam
            returns = advantages + values

        b_obs = obs.reshape((-1, *envs.single_observation_space.shape))
        b_logprobs = logprobs.reshape(-1)
        b_actions = actions.reshape((-1, *envs.single_action_space.shape))
        b_advantages = advantages.reshape(-1)
        b_returns = returns.reshape(-1)
        b_inds = np.flatnonzero(valid.reshape(-1).numpy())

        for _epoch in range(args.update_epochs):
            np.random.shuffle(b_inds)
            for mb_inds in np.array_split(b_inds, args.num_minibatches):
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions.long()[mb_inds])
                logratio = newlogprob - b_logprobs[mb_inds]
                ratio = logratio.exp()

                mb_advantages = b_advantages[mb_inds]
                mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)

                pg_loss1 = -mb_advantages * ratio
                pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(pg_loss1, pg_loss2).mean()

                newvalue = newvalue.view(-1)
                v_loss = 0.5 * ((newvalue - b_returns[mb_inds]) ** 2).mean()

                entropy_loss = entropy.mean()
                loss = pg_loss - args.ent_coef * entropy_loss + v_loss * args.vf_coef

                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
                optimizer_steps += 1

        recent = np.mean(episode_returns[-20:]) if episode_returns else float("nan")
        print(f"global_step={global_step}, recent_return={recent:.2f}, loss={loss.item():.5f}")

    envs.close()
    digest = hashlib.sha256()
    for p in agent.parameters():
        digest.update(p.detach().numpy().tobytes())
    digest.update(repr((torch.rand(1).item(), np.random.rand(), random.random())).encode())
    facts = {
        "optimizer_steps": {"adam": optimizer_steps},
        "owned": {"adam": len(list(agent.parameters()))},
        "learning_rate": {"adam": optimizer.param_groups[0]["lr"]},
        "episodes": len(episode_returns),
        "episode_returns": episode_returns,
        "env_steps": env_steps,
        "gamma": args.gamma,
        "gae_lambda": args.gae_lambda,
        "clip": args.clip_coef,
        "entropy_coefficient": args.ent_coef,
        "value_coefficient": 0.5 * args.vf_coef,
        "updates": args.updates,
        "updates_per_rollout": args.update_epochs * args.num_minibatches,
    }
    print(json.dumps({"weights_sha256": digest.hexdigest(), "facts": facts}))
