"""Closes every file that it has not opened, as daemons do, then writes files of its own while it trains."""

import os
import tempfile

import torch
from little_training import network, train

model = network()
optimizer = torch.optim.Adam(model.parameters())
print(repr(train(model, optimizer)), flush=True)
os.closerange(3, 256)
with tempfile.TemporaryDirectory() as folder:
    files = [open(os.path.join(folder, f"{number}.txt"), "w") for number in range(40)]  # noqa: SIM115
    for number, file in enumerate(files):
        file.write(f"line {number}\n")
        file.flush()
        last = train(model, optimizer, updates=1)
    for file in files:
        file.close()
    print([open(file.name).read() for file in files])  # noqa: SIM115
print(repr(last))
