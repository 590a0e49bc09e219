"""Hugging Face ``Trainer``: its own checkpoint format, our commit.

keep = CommittedCheckpoints("out/ckpt")
trainer = Trainer(..., args=TrainingArguments(save_strategy="no", ...), callbacks=[keep])
trainer.train(resume_from_checkpoint=keep.resume_from())
"""

import os
from typing import Any, Optional

from transformers import TrainerCallback, __version__

from outlive.checkpoints.torch.folders import Folders


class CommittedCheckpoints(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Makes the Trainer save when the cadence says so, and commits what it wrote. Takes the options of ``Folders``.

    The Trainer's folder is moved into ours, so its own rotation has nothing to remove; with
    ``load_best_model_at_end`` it would look for that folder, and that is refused.
    """

    def __init__(self, directory: str, **options: Any) -> None:
        self.folders = Folders(directory, made_by={"transformers": __version__}, **options)
        self._metrics: Any = None
        self._signal = ""

    def resume_from(self, allow_restart: bool = False) -> Optional[str]:
        """Return the folder for ``train(resume_from_checkpoint=...)``; None when none was ever recorded."""
        saved = self.folders.resume_point(allow_restart)
        return saved.path if saved is not None else None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        if args.load_best_model_at_end:
            raise ValueError(
                "load_best_model_at_end reads checkpoints from output_dir, and they lie in %s: load the best one from "
                "there after the training instead" % self.folders.directory
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> Any:
        reason = self.folders.due(state.global_step)
        if reason:
            control.should_save = True
            self._signal = reason if reason == "SIGTERM" else ""
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_kwargs: Any) -> None:
        known = {k[5:] if k.startswith("eval_") else k: v for k, v in (metrics or {}).items()}
        self._metrics = dict(known, val_loss=known["loss"]) if "loss" in known else known

    def on_save(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> Any:
        folder = os.path.join(args.output_dir, "checkpoint-%d" % state.global_step)
        if os.path.isdir(folder):
            self.folders.take_over(state.global_step, folder, self._metrics)
            self._metrics = None
        if self._signal:
            self.folders.stop()
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        self.folders.writer.wait()

    def close(self) -> None:
        """Commit what is in flight and give the directory back."""
        self.folders.close()
