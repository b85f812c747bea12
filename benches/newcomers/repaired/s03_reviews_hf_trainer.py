"""Fine-tune (well, train) a small BERT on restaurant reviews with the HF Trainer."""
import time

import tv_compat  # noqa: F401
import pandas as pd
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

from make_data import ensure

MAX_LEN = 128


def build_tokenizer(texts):
    tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.train_from_iterator(
        texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    )
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tok, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )


class ReviewDataset(torch.utils.data.Dataset):
    def __init__(self, texts, labels, tokenizer):
        self.enc = tokenizer(
            texts,
            truncation=True,
            max_length=MAX_LEN,
        )
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        item = {k: v[i] for k, v in self.enc.items() if k != "token_type_ids"}
        item["labels"] = self.labels[i]
        return item


def main():
    set_seed(1)
    df = pd.read_csv(ensure("reviews") / "reviews.csv")
    texts, labels = df["text"].tolist(), df["label"].tolist()
    tokenizer = build_tokenizer(texts)
    train_ds = ReviewDataset(texts[:1120], labels[:1120], tokenizer)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=128, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=512, max_position_embeddings=MAX_LEN, num_labels=2,
    )
    model = BertForSequenceClassification(config)
    args = TrainingArguments(
        output_dir="stranger-data/out-s03",
        per_device_train_batch_size=32,
        num_train_epochs=1,
        learning_rate=5e-4,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_ds,
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    t0 = time.time()
    trainer.train()
    print(f"trained {len(train_ds) * int(args.num_train_epochs)} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
