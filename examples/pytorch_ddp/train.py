"""PyTorch's DistributedDataParallel: a process for each GPU of each node, or two on a CPU."""

import os
import sys
from functools import partial

import torch
from torch import distributed, multiprocessing, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from kubernetesdlprofile import hooks, kubeprofiler

NODES, NODE = int(os.environ.get("NUM_NODES", 1)), int(os.environ.get("NODE_RANK", 0))
LOCAL = max(1, int(os.environ.get("NUM_GPUS", 2)))  # processes on this node


def train(local_rank: int) -> None:
    os.environ["LOCAL_RANK"] = str(local_rank)  # read by the library: rank 0 of each node reports
    rank, world, cuda = NODE * LOCAL + local_rank, NODES * LOCAL, torch.cuda.is_available()
    distributed.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world)
    device = f"cuda:{local_rank}" if cuda else "cpu"
    torch.manual_seed(1)  # the same data and weights in all
    inputs, direction = torch.randn(2048, 32), torch.randn(32, 1)
    data = TensorDataset(inputs, torch.sin(inputs @ direction / 3))
    sampler = DistributedSampler(data, world, rank, seed=1)
    batches = DataLoader(data, batch_size=32, sampler=sampler)
    layers = nn.Linear(32, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    with kubeprofiler.KubeProfiler(epochs=5) as api:
        if path := api.checkpoint_path():
            kept = torch.load(path, map_location="cpu")
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            api.epoch = kept["epoch"]
        for epoch in range(api.epoch, api.EPOCHS):
            api.start_epoch(hooks.any_rank)  # all ranks stop, or none
            torch.manual_seed(epoch * world + rank)  # one file cannot hold every rank's state
            sampler.set_epoch(epoch)
            for batch, expected in batches:
                loss = nn.functional.mse_loss(model(batch.to(device)), expected.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                api.measure()
            if rank == 0:
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                api.save("last.ckpt", partial(torch.save, {**states, "epoch": epoch + 1}))
                print(f"epoch {epoch + 1}: loss {loss.item()!r}", flush=True)
            api.end_epoch()


if __name__ == "__main__":
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"} | os.environ)
    spawn = multiprocessing.get_context("spawn").Process
    ranks = [spawn(target=train, args=(number,)) for number in range(LOCAL)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode) for process in ranks))  # 85: all were asked to stop
