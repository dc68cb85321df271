"""A network in Keras on TensorFlow. Stopped after any epoch, it ends with the same weights."""

import keras
import numpy as np
import tensorflow as tf

from kubernetesdlprofile import hooks, kubeprofiler

SAMPLES, BATCH = 2048, 32


class Batches(keras.utils.PyDataset):
    """Shuffled by the epoch's number, which is the same after a restart."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        data = np.random.default_rng(seed=1)
        self.inputs = data.normal(size=(SAMPLES, 32))
        self.targets = np.sin(self.inputs @ data.normal(size=(32, 1)) / 3)
        self.epoch = epoch

    def __len__(self) -> int:
        return SAMPLES // BATCH

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        order = np.random.default_rng(self.epoch).permutation(SAMPLES)
        rows = order[index * BATCH :][:BATCH]
        return self.inputs[rows], self.targets[rows]

    def on_epoch_end(self) -> None:
        self.epoch += 1


def fresh() -> keras.Model:
    dense, dropout = keras.layers.Dense(64, "tanh"), keras.layers.Dropout(0.1, seed=1)
    model = keras.Sequential([keras.Input([32]), dense, dropout, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.003), "mse")
    return model


if __name__ == "__main__":
    keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    api = kubeprofiler.KubeProfiler(epochs=5)
    path = api.checkpoint_path()
    model = keras.models.load_model(path) if path else fresh()  # with its optimizer
    done = int(model.optimizer.iterations) // (SAMPLES // BATCH)

    def seed(epoch: int, logs: object) -> None:
        for layer in model.layers:  # the model's file does not contain this
            if hasattr(layer, "seed_generator"):
                layer.seed_generator.state.assign([epoch, 1])

    def keep(epoch: int, logs: dict[str, float]) -> None:
        api.save("last.keras", model.save)
        print(f"epoch {epoch + 1}: loss {logs['loss']!r}", flush=True)

    ours = keras.callbacks.LambdaCallback(on_epoch_begin=seed, on_epoch_end=keep)
    epochs = {"initial_epoch": done, "epochs": api.EPOCHS, "shuffle": False}  # Batches does
    model.fit(Batches(done), **epochs, callbacks=[ours, hooks.keras()], verbose=0)
