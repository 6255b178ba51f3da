"""Model, optimizer and environment are pickled, copied and loaded in the middle of training, and all go on."""

import copy
import io
import pickle

import gymnasium
import torch
from little_env import Line
from little_training import network, random_states, train, weights
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, inputs):
        return self.inner(inputs)

    def __getstate__(self):
        print("asked for its state")
        return super().__getstate__() if hasattr(super(), "__getstate__") else self.__dict__


def play(env):
    return [env.step(number % 2)[:4] for number in range(3)]


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
env = gymnasium.wrappers.TimeLimit(Line(), 12)
env.reset(seed=0)
play(env)
print(repr(train(model, optimizer, updates=3)))

copied_model, copied_optimizer, copied_env = copy.deepcopy((model, optimizer, env))
print(copied_optimizer.param_groups[0]["params"][0] is next(copied_model.parameters()))
sent_model, sent_optimizer, sent_env = pickle.loads(pickle.dumps((model, optimizer, env)))
print(len(pickle.dumps(model.state_dict())), sorted(vars(model)), sorted(vars(optimizer)), sorted(vars(env)))
saved = io.BytesIO()
torch.save({"model": model, "optimizer": optimizer.state_dict()}, saved)
saved.seek(0)
loaded = torch.load(saved, weights_only=False)
loaded_optimizer = torch.optim.Adam(loaded["model"].parameters(), lr=0.01)
loaded_optimizer.load_state_dict(loaded["optimizer"])

for each_model, each_optimizer in [
    (model, optimizer),
    (copied_model, copied_optimizer),
    (sent_model, sent_optimizer),
    (loaded["model"], loaded_optimizer),
]:
    print(repr(train(each_model, each_optimizer, updates=2)), weights(each_model))
for each_env in (env, copied_env, sent_env):
    print(play(each_env))
print(copy.copy(model) is not model, random_states())
