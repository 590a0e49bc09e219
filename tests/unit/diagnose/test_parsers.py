import json
import math
import time

import pytest

from outlive.diagnose.parsers import MetricParser, point_from_wire, wire_point


def read(text):
    parser = MetricParser()
    return parser.feed(text.encode("utf-8")) + parser.flush()


LINES = [
    # nanoGPT
    ("iter 10: loss 3.2045, time 12.34ms, mfu 4.50%", {"step": 10, "loss": 3.2045, "mfu": 0.045, "source": "nanogpt"}),
    ("iter 0: loss 10.9, time 90210.11ms, mfu -100.00%", {"step": 0, "loss": 10.9, "source": "nanogpt"}),
    ("step 250: train loss 2.1, val loss 2.2", {"step": 250, "loss": 2.1, "val_loss": 2.2, "source": "nanogpt"}),
    # LitGPT
    (
        "Epoch 1 | iter 10 step 5 | loss train: 3.1, val: n/a | iter time: 301.11 ms (step) remaining time: 0:01:10",
        {"epoch": 1.0, "step": 5, "loss": 3.1, "source": "litgpt"},
    ),
    (
        "Epoch 2 | iter 40 step 20 | loss train: 2.9, val: 3.05 | iter time: 301.11 ms",
        {"epoch": 2.0, "step": 20, "loss": 2.9, "val_loss": 3.05, "source": "litgpt"},
    ),
    # Lightning
    (
        "Epoch 0:  50%|█████     | 5/10 [00:01<00:01,  3.20it/s, v_num=0, train_loss=2.300]",
        {"epoch": 0.0, "step": 5, "total": 10, "local": True, "loss": 2.3, "source": "lightning"},
    ),
    (
        "Epoch 3/9 ━━━━━━━━━━━━━━╸━━━ 45/90 0:00:09 • 0:00:09 5.02it/s v_num: 1.000 train_loss_step: 0.52",
        {"epoch": 3.0, "step": 45, "total": 90, "local": True, "loss": 0.52, "source": "lightning"},
    ),
    # HF Trainer
    (
        "{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1}",
        {"loss": 2.3, "grad_norm": 1.2, "lr": 5e-05, "epoch": 0.1, "source": "hf"},
    ),
    (
        "{'loss': '2.3', 'grad_norm': '1.2', 'learning_rate': '5e-05', 'epoch': '0.1'}",
        {"loss": 2.3, "grad_norm": 1.2, "lr": 5e-05, "epoch": 0.1, "source": "hf"},
    ),
    (
        "{'eval_loss': 1.9, 'eval_runtime': 4.1, 'eval_samples_per_second': 12.1, 'epoch': 1.0}",
        {"val_loss": 1.9, "epoch": 1.0, "source": "hf"},
    ),
    # tqdm
    (
        "37%|███▋      | 370/1000 [00:10<00:20, 31.2it/s, loss=2.3]",
        {"step": 370, "total": 1000, "loss": 2.3, "source": "tqdm"},
    ),
    ("Training:  1%|▏  | 10/1,200 [00:41<1:21:10,  4.09s/it]", {"step": 10, "total": 1200, "source": "tqdm"}),
    # key and value
    ("step=10 loss=2.3 lr=1e-4", {"step": 10, "loss": 2.3, "lr": 1e-4, "source": "kv"}),
    ("step 10/1000 | loss 2.3", {"step": 10, "total": 1000, "loss": 2.3, "source": "kv"}),
    ("[10/1000] loss: 2.3", {"step": 10, "total": 1000, "loss": 2.3, "source": "kv"}),
    (
        "step: 1,500, loss: 2.25, grad norm: 0.8, tokens/s: 12,345",
        {"step": 1500, "loss": 2.25, "grad_norm": 0.8, "tokens_per_s": 12345.0, "source": "kv"},
    ),
    (
        "step 7 | loss 1.5 | 45.5k tokens/s | mfu 41%",
        {"step": 7, "loss": 1.5, "tokens_per_s": 45500.0, "mfu": 0.41, "source": "kv"},
    ),
    (
        "step 9 loss tensor(0.5, device='cuda:0') tok/s 1.2M",
        {"step": 9, "loss": 0.5, "tokens_per_s": 1.2e6, "source": "kv"},
    ),
    (
        " iteration      100/  500000 | learning rate: 1.5E-06 | lm loss: 1.0E+01 | grad norm: 2.1 |",
        {"step": 100, "total": 500000, "lr": 1.5e-06, "loss": 10.0, "grad_norm": 2.1, "source": "kv"},
    ),
    (
        "| epoch   3 |   200/ 2983 batches | lr 20.00 | ms/batch 10.1 | loss  5.20 | ppl 181.3",
        {"epoch": 3.0, "step": 200, "total": 2983, "local": True, "lr": 20.0, "loss": 5.2, "source": "kv"},
    ),
    (
        "Epoch: [2][310/7510]\tTime 0.9 (0.9)\tLoss 1.02 (1.04)",
        {"epoch": 2.0, "step": 310, "total": 7510, "local": True, "loss": 1.02, "source": "kv"},
    ),
    ("epoch 4 train loss 0.5 val loss 0.6", {"epoch": 4.0, "loss": 0.5, "val_loss": 0.6, "source": "kv"}),
    ("final loss: 0.125", {"loss": 0.125, "source": "kv"}),
    # Keras
    (
        "455/455 [==============================] - 22s 5ms/step - loss: 0.0110 - accuracy: 0.99 - val_loss: 0.0090",
        {"step": 455, "total": 455, "local": True, "loss": 0.011, "acc": 0.99, "val_loss": 0.009, "source": "keras"},
    ),
    # JSON
    ('{"step": 3, "train_loss": 0.5, "lr": 0.1}', {"step": 3, "loss": 0.5, "lr": 0.1, "source": "json"}),
    (
        '{"step": 3, "train": {"loss": 0.5}, "val": {"loss": 0.6}}',
        {"step": 3, "loss": 0.5, "val_loss": 0.6, "source": "json"},
    ),
    ('{"level": "info", "message": "step=3 loss=0.5"}', {"step": 3, "loss": 0.5, "source": "kv"}),
]


@pytest.mark.parametrize("line,point", LINES, ids=[x[0][:40] for x in LINES])
def test_formats(line, point):
    assert read(line + "\n") == [point]


PREFIXES = [
    "[rank0]: ", "0: ", "[default0]:", "[1,0]<stdout>:", "(train pid=812, ip=10.0.0.2) ", "2024-05-01 10:11:12,345 ",
    "[2024-05-01 10:11:12] ", "2024-05-01T10:11:12.345Z ", "10:11:12 ", "INFO:root:", "[INFO] ", "INFO - ",
    "2024-05-01 10:11:12 | INFO | ", "2024-05-01 10:11:12,345 - INFO - ",
    "[rank3]: [2024-05-01 10:11:12,345] [INFO] [train.py:96:log] ",
    "I0501 10:11:12.345678 812 train.py:12] ", "\x1b[32m",
]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    "line", ["step 10/1000 | loss 2.3", "{'loss': 2.3, 'epoch': 0.5}", "iter 10: loss 2.3, time 1.00ms, mfu 4.00%"]
)
def test_prefixes_do_not_matter(prefix, line):
    assert read(prefix + line + "\n") == read(line + "\n") != []


SILENT = [
    "torch 2.1.0+cu121, step 2.0.1",
    "Installing collected packages: loss-functions-2.3.1, steps-1.0",
    "loss 2024-05-01",
    "2024-05-01 10:11:12 step started",
    "Namespace(lr=0.001, step=100, loss_weight=1.0, epochs=3)",
    "TrainingArguments(learning_rate=5e-05, max_steps=100, loss=1.0)",
    "args: {'lr': 0.1, 'step': 10, 'loss': 0.5}",
    "config: step=100 lr=0.1",
    "python train.py --lr 0.1 --step 100 --loss 3",
    "+ train --loss=3 --step=10",
    "{'lr': 0.1, 'epochs': 3, 'loss': 'mse'}",
    '{"loss": "cross_entropy", "lr": 0.1}',
    '{"loss_weight": 1.0, "max_steps": 100}',
    "{'train_runtime': 12.1, 'train_loss': 0.5, 'epoch': 3.0}",
    "|   0  NVIDIA A100-SXM4-40GB       On  | 00000000:07:00.0 Off |                    0 |",
    "| N/A   34C    P0    61W / 400W |      0MiB / 40960MiB |      0%      Default |",
    "Step 3/12 : RUN pip install torch",
    "Downloading model: 71%|███████   | 2.80G/3.94G [02:41<01:06, 17.2MB/s]",
    "Map: 100%|██████████| 1000/1000 [00:01<00:00, 900.1 examples/s]",
    "Loading checkpoint shards:  50%|█████     | 1/2 [00:01<00:01,  1.00s/it]",
    "Validation DataLoader 0:  50%|█████     | 5/10 [00:01<00:01,  3.20it/s]",
    "ValueError: step 10 loss 2.3",
    "torch.cuda.OutOfMemoryError: loss 2.3 at step 10",
    "    loss = 0.5 * model(x).mean()",
    "best val loss 1.2, patience 3, loss threshold 0.1",
    "val_loss did not improve from 1.06",
    "loss scale: 65536",
    "warmup steps 100, lr 0.1",
    "Saving checkpoint at step 100",
    "Continuing training from global step 100",
    "step (1) of the manual: lower the loss",
    "lossless 3.2",
    "10.0.0.1:2930 connected, loss of packets",
]


@pytest.mark.parametrize("line", SILENT, ids=[x[:40] for x in SILENT])
def test_what_is_no_metric_stays_silent(line):
    assert read(line + "\n") == []


def test_code_inside_a_traceback_is_no_metric():
    text = (
        "step 1 loss 2.0\nTraceback (most recent call last):\n"
        '  File "train.py", line 3, in <module>\n    loss = 0.5\n    step=10, loss=3.0,\n'
        "ValueError: loss 9\nstep 2 loss 1.5\n"
    )
    assert [p["step"] for p in read(text)] == [1, 2]


def test_nan_and_inf_are_kept_and_travel_as_words():
    (point,) = read("{'loss': nan, 'grad_norm': inf, 'learning_rate': 0.0, 'epoch': 0.2}\n")
    assert math.isnan(point["loss"]) and math.isinf(point["grad_norm"])
    sent = json.loads(json.dumps(wire_point(point), allow_nan=False))
    assert sent["loss"] == "nan" and sent["grad_norm"] == "inf"
    back = point_from_wire(sent)
    assert math.isnan(back["loss"]) and back["grad_norm"] == math.inf and back["source"] == "hf"
    assert read("step 5 loss -inf\n")[0]["loss"] == -math.inf
    assert math.isnan(read('{"step": 5, "loss": NaN}\n')[0]["loss"])


def test_every_update_of_a_bar_is_a_point_once():
    text = (
        "".join("\r %d%%|#  | %d/100 [00:01<00:09, 9.9it/s, loss=%.1f]" % (n, n, 5 - n / 50) for n in (10, 20, 20, 30))
        + "\n"
    )
    assert [p["step"] for p in read(text)] == [10, 20, 30]


def test_an_evaluation_bar_inside_the_training_bar_is_no_step():
    rate = "[00:01<00:09, 9.9it/s]"
    text = "\r 50%|# | 500/1000 " + rate + "\r 10%|# | 1/10 " + rate + "\r 51%|# | 510/1000 " + rate + "\n"
    assert [p["step"] for p in read(text)] == [500, 510]


def test_a_record_behind_its_bar_takes_the_step():
    points = read("  5%|#   | 50/1000 [00:01<00:09, 9.9it/s]{'loss': 2.0, 'epoch': 0.05}\n")
    assert points[-1] == {"loss": 2.0, "epoch": 0.05, "step": 50, "total": 1000, "source": "hf"}


def test_scaler_skips_are_marked():
    (point,) = read(
        "[2024-01-01 10:00:00,1] [INFO] OVERFLOW! Rank 0 Skipping step. Attempted scale: 65536, reducing to 32768\n"
    )
    assert point == {"skipped": 1, "loss_scale": 32768.0, "source": "scaler"}
    (point,) = read("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0\n")
    assert point["loss_scale"] == 16384.0


def test_keras_epoch_heading_belongs_to_its_bars():
    text = "Epoch 3/10\n 10/455 [>......] - ETA: 9s - loss: 0.5\n"
    assert read(text) == [{"loss": 0.5, "step": 10, "total": 455, "local": True, "epoch": 3.0, "source": "keras"}]


def test_hostile_lines_end_quickly_and_quietly():
    for text in (
        "loss " * 20000,
        "a" * 100000 + " loss",
        "{" * 50000 + "loss",
        "%|" * 30000,
        "loss=" + "9" * 60000,
        "{'loss': " * 8000,
        "step 1e999999 loss 1e999999",
    ):
        assert isinstance(read(text + "\n"), list)


@pytest.mark.parametrize("line", [b"loss 1 " + b"a" * 3900, b"loss " + b"1" * 3900, b"loss 1," + b"111," * 970])
def test_long_words_cost_no_more_than_short_ones(line):
    def cost_s(data):
        begin = time.process_time()
        parser = MetricParser()
        parser.feed(data)
        parser.flush()
        return time.process_time() - begin

    short = cost_s((b"loss 1 " + b"a " * 1950 + b"\n") * 20)
    assert cost_s((line + b"\n") * 20) < 40 * short + 2.0  # it was a thousand times as much
