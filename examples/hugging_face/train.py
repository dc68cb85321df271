"""A small BERT, built from its configuration; Hugging Face's Trainer trains it without a hub."""

import torch
import transformers
from torch.utils.data import Dataset

from kubernetesdlprofile import hooks, kubeprofiler

WORDS, LENGTH, SAMPLES = 50, 12, 512


class Sentences(Dataset):
    """Random words; the label says whether the first one is in the vocabulary's upper half."""

    def __init__(self) -> None:
        chance = torch.Generator().manual_seed(1)
        self.words = torch.randint(WORDS, (SAMPLES, LENGTH), generator=chance)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = self.words[index]
        return {"input_ids": words, "labels": (words[0] >= WORDS // 2).long()}


class Prints(transformers.TrainerCallback):
    def on_log(self, *_: object, logs: dict[str, float], **__: object) -> None:
        if "loss" in logs:
            print(f"epoch {round(logs['epoch'])}: loss {logs['loss']!r}", flush=True)


if __name__ == "__main__":
    api = kubeprofiler.KubeProfiler(epochs=5)
    transformers.set_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=WORDS, num_hidden_layers=1, **sizes)
    arguments = transformers.TrainingArguments(
        output_dir=api.root_dir,
        num_train_epochs=api.EPOCHS,  # of all runs together
        per_device_train_batch_size=16,
        learning_rate=0.003,
        lr_scheduler_type="constant",
        save_strategy="epoch",
        save_total_limit=2,  # the previous one is removed when the next is complete
        logging_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
    )
    callbacks = [Prints(), hooks.hugging_face()]
    model = transformers.BertForSequenceClassification(config)
    trainer = transformers.Trainer(model, arguments, train_dataset=Sentences(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=api.checkpoint_path())
