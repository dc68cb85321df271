"""Ready-made callbacks, which make the calls of `KubeProfiler` for a framework's training loop.

Each function imports its framework when it is called, and returns an object for the list of
callbacks. All ranks agree on a stop, so that no rank waits for one that has exited. They stop by
SystemExit at the start of an epoch, when the epoch before has been saved.
"""

import sys
from typing import Any, Callable

from kubernetesdlprofile.kubeprofiler import KubeProfiler


def lightning() -> Any:
    """`Trainer(callbacks=[hooks.lightning()], max_epochs=api.EPOCHS)`, and
    `trainer.fit(model, ckpt_path=api.ckpt_path)`."""
    if "pytorch_lightning" in sys.modules:  # the older, incompatible name of the same package
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback

    def begin(_: Any, trainer: Any, *__: Any) -> None:
        _begin(any_rank, trainer.current_epoch, trainer.world_size, trainer.local_rank)

    return _callback(Callback, lightning, begin, "train_epoch_start", "train_batch", "train_epoch")


def hugging_face() -> Any:
    """`Trainer(callbacks=[hooks.hugging_face()], args=TrainingArguments(save_strategy="epoch",
    num_train_epochs=api.EPOCHS, …))`, and `trainer.train(api.ckpt_path)`."""
    from transformers import TrainerCallback

    def begin(_: Any, args: Any, state: Any, *__: Any, **___: Any) -> None:
        _begin(any_rank, round(state.epoch or 0), args.world_size, args.local_process_index)

    return _callback(TrainerCallback, hugging_face, begin, "epoch_begin", "step", "epoch")


def keras() -> Any:
    """`model.fit(callbacks=[…, hooks.keras()], epochs=api.EPOCHS, initial_epoch=api.EPOCHS_DONE)`;
    it is the last callback, so that an epoch is saved before it is reported."""
    if "tensorflow" in sys.modules:
        from tensorflow.keras.callbacks import Callback
    else:
        from keras.callbacks import Callback

    def begin(self: Any, epoch: int, *_: Any, **__: Any) -> None:
        api = KubeProfiler()
        api._epoch = max(epoch, api.EPOCHS_DONE)  # it is no proof that the weights have so many
        api.start_epoch(lambda stop: _any_worker(self.model, stop))

    return _callback(Callback, keras, begin, "epoch_begin", "train_batch", "epoch")


def any_rank(stop: bool) -> bool:
    """Whether any rank of PyTorch's process group was told to stop. Every rank has to call it, as
    in `api.start_epoch(hooks.any_rank)`. Without a process group, returns `stop`."""
    import torch
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return stop
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    told = torch.tensor([int(stop)], device=device)
    distributed.all_reduce(told, op=distributed.ReduceOp.MAX)
    return bool(told.item())


def _any_worker(model: Any, stop: bool) -> bool:
    """The same with TensorFlow's means, if several replicas train this model."""
    strategy: Any = getattr(model, "distribute_strategy", None)
    if getattr(strategy, "num_replicas_in_sync", 1) == 1:
        return stop
    import tensorflow

    told = strategy.run(lambda: tensorflow.constant(float(stop)))
    return bool(float(strategy.reduce("SUM", told, axis=None)) > 0)


def _begin(agree: Callable[[bool], bool], done: int, ranks: int = 1, local_rank: int = 0) -> None:
    api = KubeProfiler()
    if ranks > 1:
        api.LOCAL_RANK = local_rank
    api.epoch = done  # the framework's checkpoint is the most reliable source
    api.start_epoch(agree)


def _callback(base: Any, make: Any, begin: Any, first: str, step: str, epoch: str) -> Any:
    """Makes the callback's class here, because its base has only now been imported."""
    api = KubeProfiler()
    methods = {
        "on_" + first: begin,
        "on_" + step + "_end": lambda *_, **__: api.measure(),
        "on_" + epoch + "_end": lambda *_, **__: api.end_epoch(),
        "on_train_end": lambda *_, **__: api.end(),
        "__reduce__": lambda _: (make, ()),  # where processes are spawned, callbacks are pickled
    }
    return type("Reports", (base,), methods)()
