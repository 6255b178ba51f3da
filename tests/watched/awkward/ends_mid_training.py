"""Ends in the middle of training, in the way that its argument names."""

import atexit
import os
import signal
import sys

import torch
from little_training import network, problem

how = sys.argv[1]
atexit.register(print, "at exit")
model = network()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs, targets = problem()
for update in range(12):
    optimizer.zero_grad()
    loss = (model(inputs) - targets).pow(2).mean()
    loss.backward()
    if update == 7:
        print("now", flush=True)
        print("lost in the buffer", end="")
        if how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        elif how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "leave":
            os._exit(5)
    optimizer.step()
    print(update, repr(loss.item()), flush=True)
