"""Global settings of torch: default device and dtype, deterministic algorithms, autocast with a scaler, inference mode;
at last a CUDA device that is not there, with torch's own error.
"""

import sys

import torch
from little_training import digest, network, problem, random_states, weights
from little_training import train as train_on
from torch import nn


def train(model, optimizer):
    return train_on(model, optimizer, updates=2)


def show(name, model, last):
    print(name, repr(last), weights(model), torch.is_grad_enabled(), torch._C._len_torch_function_stack())


inputs, targets = problem()
with torch.device("cpu"):
    model = network()
    show("device", model, train(model, torch.optim.Adam(model.parameters())))
torch.set_default_device("cpu")
model = network()
show("default device", model, train(model, torch.optim.Adam(model.parameters())))
print(torch.get_default_device(), torch.zeros(1).device)
torch.set_default_device(None)

torch.use_deterministic_algorithms(True)
model = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 1))
show("deterministic", model, train(model, torch.optim.SGD(model.parameters(), lr=0.1)))
print(torch.are_deterministic_algorithms_enabled())
torch.use_deterministic_algorithms(False)

model = network()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cpu", enabled=False)
for everything_inside in (False, True, True):
    with torch.autocast("cpu", torch.bfloat16):
        optimizer.zero_grad()
        output = model(inputs)
        loss = (output.float() - targets).pow(2).mean()
        if everything_inside:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            with torch.no_grad():
                print(output.dtype, digest(model(inputs)))
    if not everything_inside:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
show("autocast", model, loss.item())

torch.set_default_dtype(torch.float64)
model = nn.Linear(4, 1)
loss = (model(inputs.double()) - targets.double()).pow(2).mean()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss.backward()
optimizer.step()
show("double", model, loss.item())
torch.set_default_dtype(torch.float32)

model = network().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = (model(inputs.bfloat16()) - targets).pow(2).mean()
    loss.backward()
    optimizer.step()
show("half", model, loss.item())

model = network()
with torch.inference_mode():
    model(inputs)
torch.set_grad_enabled(False)
model(inputs)
with torch.enable_grad():
    show("grad disabled outside", model, train(model, torch.optim.Adam(model.parameters())))
torch.set_grad_enabled(True)
with torch.device("meta"):
    ghost = nn.Linear(4, 1)
    print(ghost(torch.zeros(2, 4)).shape)
print(random_states())
if torch.cuda.is_available():
    sys.exit("this machine has what the script is to miss")
network().to("cuda")
