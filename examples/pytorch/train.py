"""A network in PyTorch. Stopped after any epoch, it ends on a CPU with the very same weights."""

from functools import partial

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from kubernetesdlprofile import kubeprofiler

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    torch.manual_seed(1)
    inputs = torch.randn(2048, 32)
    targets = torch.sin(inputs @ torch.randn(32, 1) / 3)
    batches = DataLoader(TensorDataset(inputs, targets), batch_size=32, shuffle=True)
    layers = nn.Linear(32, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1)
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    with kubeprofiler.KubeProfiler(epochs=5) as api:
        if path := api.checkpoint_path():
            kept = torch.load(path, map_location="cpu")
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            torch.set_rng_state(kept["random"])  # which also shuffles
            torch.cuda.set_rng_state_all(kept["random_cuda"])  # on a CPU there is none
            api.epoch = kept["epoch"]
        for epoch in api.epochs():
            total = 0.0
            for batch, expected in batches:
                loss = nn.functional.mse_loss(model(batch.to(DEVICE)), expected.to(DEVICE))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
                api.measure()
            kept = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "random": torch.get_rng_state(),
                "random_cuda": torch.cuda.get_rng_state_all(),
                "epoch": epoch + 1,
            }
            api.save("last.ckpt", partial(torch.save, kept))
            print(f"epoch {epoch + 1}: loss {total / len(batches)!r}", flush=True)


if __name__ == "__main__":
    main()
