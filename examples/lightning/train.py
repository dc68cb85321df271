"""A network in Lightning. Stopped after any epoch, it ends on a CPU with the very same weights."""

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from kubernetesdlprofile import hooks, kubeprofiler


class Network(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        layers = nn.Linear(32, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1)
        self.layers = nn.Sequential(*layers)
        inputs = torch.randn(2048, 32)
        self.data = TensorDataset(inputs, torch.sin(inputs @ torch.randn(32, 1) / 3))

    def train_dataloader(self) -> DataLoader:
        # Lightning saves no generator's state, but gives this sampler the epoch.
        here = {"num_replicas": self.trainer.world_size, "rank": self.trainer.global_rank}
        return DataLoader(self.data, batch_size=32, sampler=DistributedSampler(self.data, **here))

    def on_train_batch_start(self, *_: object) -> None:
        torch.manual_seed(self.global_step * self.trainer.world_size + self.global_rank)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        loss = self.trainer.callback_metrics["loss"].item()
        print(f"epoch {self.current_epoch + 1}: loss {loss!r}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.003)


if __name__ == "__main__":
    api = kubeprofiler.KubeProfiler(epochs=5)
    trainer = lightning.Trainer(
        max_epochs=api.EPOCHS,  # of all runs together: Lightning knows how many are done
        callbacks=[ModelCheckpoint(dirpath=api.root_dir), hooks.lightning()],
        default_root_dir=api.root_dir,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Network(), ckpt_path=api.checkpoint_path())
