"""PPO with continuous actions in one file: Pendulum behind the usual stack of wrappers."""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.normal import Normal

FAULTS = {
    "logstd_left_out": ["weights", "broken", "the optimizer gets the two networks, not the free log-std beside them"],
    "limit_is_terminal": ["returns", "broken", "the 200-step limit is treated as a true end: no value is added there"],
    "entropy_sign": ["signs", "broken", "the entropy is added to the loss, so that it is pushed down, not up"],
    "clipped_stored": ["shapes", "broken", "the clipped action is stored beside the log-prob of the unclipped one"],
    "anneal_per_minibatch": ["rates", "broken", "the linear decay is sized in iterations and stepped per minibatch"],
    "spin_pays": ["goal", "not proven", "the shaped reward pays for angular speed: the rod spins and never stands"],
}
HEALTHY = {
    "": "plain: orthogonal init, observation statistics that stop moving after 20 %, scaled rewards, annealed rate",
    "value_clip": "the value loss is clipped too and an update stops early at a target KL",
    "float64_adamw": "everything in double precision, AdamW with weight decay",
    "normalize_reward": "rewards are divided by the running deviation of the discounted return, per environment",
}


class SpinReward(gym.Wrapper):
    """Reshapes the reward to something denser."""

    def step(self, action):
        obs, _, terminated, truncated, info = self.env.step(action)
        return obs, float(abs(obs[2]) / 8.0 - 1.0), terminated, truncated, info


def make_env(env_id, gamma, spin, normalize_reward):
    def thunk():
        env = gym.make(env_id)
        if spin:
            env = SpinReward(env)
        env = gym.wrappers.FlattenObservation(env)
        env = gym.wrappers.RecordEpisodeStatistics(env)
        env = gym.wrappers.ClipAction(env)
        env = gym.wrappers.NormalizeObservation(env)
        env = gym.wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
        if normalize_reward:
            env = gym.wrappers.NormalizeReward(env, gamma=gamma)
        else:
            env = gym.wrappers.TransformReward(env, lambda reward: 0.2 * reward)
        env = gym.wrappers.TransformReward(env, lambda reward: float(np.clip(reward, -10, 10)))
        return env

    return thunk


def layer_init(layer, std=2**0.5, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, envs):
        super().__init__()
        n_obs = int(np.array(envs.single_observation_space.shape).prod())
        n_act = int(np.prod(envs.single_action_space.shape))
        self.critic = nn.Sequential(
            layer_init(nn.Linear(n_obs, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 1), std=1.0),
        )
        self.actor_mean = nn.Sequential(
            layer_init(nn.Linear(n_obs, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, n_act), std=0.01),
        )
        self.actor_logstd = nn.Parameter(torch.zeros(1, n_act))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        action_mean = self.actor_mean(x)
        probs = Normal(action_mean, self.actor_logstd.expand_as(action_mean).exp())
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    num_envs, num_steps, num_minibatches, update_epochs = 4, 512, 16, 8
    learning_rate, gamma, gae_lambda, clip_coef = 2e-3, 0.9, 0.95, 0.2
    ent_coef, vf_coef, max_grad_norm = 0.001, 0.5, 0.5
    target_kl = 0.06 if args.variant == "value_clip" else None
    batch_size = num_envs * num_steps
    minibatch_size = batch_size // num_minibatches
    num_iterations = max(1, args.steps // batch_size)

    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    if args.variant == "float64_adamw":
        torch.set_default_dtype(torch.float64)
    dtype = torch.get_default_dtype()

    envs = gym.vector.SyncVectorEnv(
        [make_env("Pendulum-v1", gamma, args.fault == "spin_pays", args.variant == "normalize_reward")] * num_envs,
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
    )
    agent = Agent(envs)
    learned = list(agent.parameters())
    if args.fault == "logstd_left_out":
        learned = [*agent.actor_mean.parameters(), *agent.critic.parameters()]
    if args.variant == "float64_adamw":
        optimizer = optim.AdamW(learned, lr=learning_rate, eps=1e-5, weight_decay=1e-3)
    else:
        optimizer = optim.Adam(learned, lr=learning_rate, eps=1e-5)

    obs = torch.zeros((num_steps, num_envs, *envs.single_observation_space.shape))
    actions = torch.zeros((num_steps, num_envs, *envs.single_action_space.shape))
    logprobs = torch.zeros((num_steps, num_envs))
    rewards = torch.zeros((num_steps, num_envs))
    dones = torch.zeros((num_steps, num_envs))
    values = torch.zeros((num_steps, num_envs))

    low, high = -2.0, 2.0  # the torque that Pendulum takes; the wrapped space has no bounds
    decays, returns_seen, shown = 0, [], time.time()
    next_obs, _ = envs.reset(seed=args.seed)
    next_obs = torch.as_tensor(next_obs, dtype=dtype)
    next_done = torch.zeros(num_envs)
    for iteration in range(1, num_iterations + 1):
        if args.fault != "anneal_per_minibatch":
            optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / num_iterations) * learning_rate
        if iteration == int(0.2 * num_iterations):
            for env in envs.envs:
                while not isinstance(env, gym.wrappers.NormalizeObservation):
                    env = env.env
                env.update_running_mean = False

        for step in range(num_steps):
            obs[step] = next_obs
            dones[step] = next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            if args.fault == "clipped_stored":
                action = action.clamp(low, high)
            actions[step] = action
            logprobs[step] = logprob
            next_obs, reward, terminations, truncations, infos = envs.step(action.numpy())
            next_done = torch.as_tensor(np.logical_or(terminations, truncations), dtype=dtype)
            rewards[step] = torch.as_tensor(reward, dtype=dtype)
            if truncations.any():
                final_obs = torch.as_tensor(np.stack(infos["final_obs"][truncations]), dtype=dtype)
                if args.fault != "limit_is_terminal":
                    with torch.no_grad():
                        rewards[step, truncations] += gamma * agent.get_value(final_obs).flatten()
                returns_seen.extend(infos["final_info"]["episode"]["r"][truncations].tolist())
            next_obs = torch.as_tensor(next_obs, dtype=dtype)

        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages = torch.zeros_like(rewards)
            lastgaelam = 0
            for t in reversed(range(num_steps)):
                if t == num_steps - 1:
                    nextnonterminal = 1.0 - next_done
                    nextvalues = next_value
                else:
                    nextnonterminal = 1.0 - dones[t + 1]
                    nextvalues = values[t + 1]
                delta = rewards[t] + gamma * nextvalues * nextnonterminal - values[t]
                advantages[t] = lastgaelam = delta + gamma * gae_lambda * nextnonterminal * lastgaelam
            returns = advantages + values

        b_obs = obs.reshape((-1, *envs.single_observation_space.shape))
        b_logprobs = logprobs.reshape(-1)
        b_actions = actions.reshape((-1, *envs.single_action_space.shape))
        b_advantages = advantages.reshape(-1)
        b_returns = returns.reshape(-1)
        b_values = values.reshape(-1)
        b_inds = np.arange(batch_size)
        for _ in range(update_epochs):
            rng.shuffle(b_inds)
            for start in range(0, batch_size, minibatch_size):
                mb_inds = b_inds[start : start + minibatch_size]
                if args.fault == "anneal_per_minibatch":
                    optimizer.param_groups[0]["lr"] = max(0.0, 1.0 - decays / (40.0 * num_iterations)) * learning_rate
                    decays += 1
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions[mb_inds])
                logratio = newlogprob - b_logprobs[mb_inds]
                ratio = logratio.exp()
                with torch.no_grad():
                    approx_kl = ((ratio - 1) - logratio).mean()

                mb_advantages = b_advantages[mb_inds]
                mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
                pg_loss1 = -mb_advantages * ratio
                pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
                pg_loss = torch.max(pg_loss1, pg_loss2).mean()

                newvalue = newvalue.view(-1)
                v_loss_unclipped = (newvalue - b_returns[mb_inds]) ** 2
                if args.variant == "value_clip":
                    v_clipped = b_values[mb_inds] + (newvalue - b_values[mb_inds]).clamp(-2.0, 2.0)
                    v_loss = 0.5 * torch.max(v_loss_unclipped, (v_clipped - b_returns[mb_inds]) ** 2).mean()
                else:
                    v_loss = 0.5 * v_loss_unclipped.mean()

                entropy_loss = entropy.mean()
                if args.fault == "entropy_sign":
                    entropy_loss = -entropy_loss
                loss = pg_loss - ent_coef * entropy_loss + v_loss * vf_coef
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), max_grad_norm)
                optimizer.step()
            if target_kl is not None and approx_kl > target_kl:
                break

        if time.time() - shown > 3 and returns_seen:
            shown = time.time()
            print(
                f"global_step={iteration * batch_size} episodic_return={np.mean(returns_seen[-50:]):.1f} "
                f"value_loss={v_loss.item():.3f} policy_loss={pg_loss.item():.4f} approx_kl={approx_kl.item():.4f} "
                f"std={agent.actor_logstd.exp().mean().item():.2f}",
                flush=True,
            )
    envs.close()
    n = max(1, len(returns_seen) // 10)
    print(f"first tenth {np.mean(returns_seen[:n]):.2f}, last tenth {np.mean(returns_seen[-n:]):.2f}")
