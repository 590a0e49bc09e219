"""Small trainings with the trainers that people use: trainers_job.py KIND DIRECTORY.

Prints what three attempts ended with: the first is undisturbed, the second is killed, the third goes on. One process
imports the trainer and forks them.
"""

import hashlib
import json
import os
import signal
import sys

import torch

torch.set_num_threads(1)
KILLED_AT, STEPS = 7, 10


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        return {"x": torch.full((6,), i / 24), "labels": torch.tensor([float(i % 3)])}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))

    def forward(self, x, labels=None):
        y = self.body(x)
        return {"loss": (y - labels).square().mean(), "logits": y}


def digest(model):
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode() + value.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def hf(home, kill_at):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from outlive.checkpoints.torch.hf import CommittedCheckpoints

    class Kill(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == kill_at:
                keep.folders.writer.wait()
                os.kill(os.getpid(), signal.SIGKILL)

    keep = CommittedCheckpoints(os.path.join(home, "ckpt"), every_steps=3, signals=())
    torch.manual_seed(0)
    model = Net()
    arguments = TrainingArguments(
        output_dir=os.path.join(home, "out"),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        seed=3,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Numbers(), callbacks=[keep, Kill()])
    point = keep.resume_from()
    trainer.train(resume_from_checkpoint=point)
    keep.close()
    return point, digest(model)


def lightning(home, kill_at):
    import lightning as L

    from outlive.checkpoints.torch import ResumableLoader
    from outlive.checkpoints.torch.lightning import CommittedCheckpoints

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, index):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    class Kill(L.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if trainer.global_step == kill_at:
                keep.folders.writer.wait()
                os.kill(os.getpid(), signal.SIGKILL)

    keep = CommittedCheckpoints(os.path.join(home, "ckpt"), every_steps=3, signals=())
    torch.manual_seed(0)
    module = Module()
    trainer = L.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[keep, Kill()],
        default_root_dir=home,
    )
    loader = ResumableLoader(torch.utils.data.DataLoader(Numbers(), 4, shuffle=True), seed=5)
    point = keep.resume_from()
    trainer.fit(module, loader, ckpt_path=point)
    keep.close()
    return point, digest(module)


def accelerate(home, kill_at):
    from accelerate import Accelerator

    from outlive.checkpoints.torch import ResumableLoader
    from outlive.checkpoints.torch.accelerate import AcceleratorCheckpoints

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    loader = ResumableLoader(torch.utils.data.DataLoader(Numbers(), 4, shuffle=True), seed=5)
    accelerator.register_for_checkpointing(loader)
    keep = AcceleratorCheckpoints(accelerator, os.path.join(home, "ckpt"), every_steps=3, signals=())
    begun = step = keep.resume()
    batches = loader.endless()
    while step < STEPS:
        loss = model(**next(batches))["loss"]
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        step += 1
        keep.maybe_save(step)
        if step == kill_at:
            keep.folders.writer.wait()
            os.kill(os.getpid(), signal.SIGKILL)
    keep.close()
    return begun, digest(model)


def attempt(kind, home, kill_at):
    os.makedirs(home, exist_ok=True)
    answer = os.path.join(home, "answer.json")
    pid = os.fork()
    if pid == 0:
        said = {}
        try:
            point, found = globals()[kind](home, kill_at)
            said = {"resumed": point, "digest": found}
        except BaseException as error:
            import traceback

            said = {"error": "".join(traceback.format_exception(type(error), error, error.__traceback__))}
        finally:
            with open(answer, "w") as file:
                json.dump(said, file)
            os._exit(0)
    _pid, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return {"killed": os.WTERMSIG(status)}
    with open(answer) as file:
        return json.load(file)


if __name__ == "__main__":
    kind, base = sys.argv[1:]
    __import__({"hf": "transformers.trainer", "lightning": "lightning", "accelerate": "accelerate"}[kind])
    homes = [(os.path.join(base, "whole"), None)] + [(os.path.join(base, "cut"), at) for at in (KILLED_AT, None)]
    print(json.dumps([attempt(kind, home, at) for home, at in homes]))
