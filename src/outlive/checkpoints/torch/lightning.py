"""Lightning: its own ``.ckpt``, our commit.

keep = CommittedCheckpoints("out/ckpt")
trainer = Trainer(..., callbacks=[keep], enable_checkpointing=False)
trainer.fit(model, loader, ckpt_path=keep.resume_from())
"""

import os
from typing import Any, Dict, Optional

from lightning import __version__
from lightning.pytorch.callbacks import Callback

from outlive.checkpoints.torch import rng
from outlive.checkpoints.torch.folders import Folders

FILE = "lightning.ckpt"


class CommittedCheckpoints(Callback):  # type: ignore[misc, unused-ignore]
    """Saves after training batches when the cadence says so. Takes the options of ``Folders``.

    Lightning keeps no random numbers; they travel as this callback's state. The place in the data is kept for loaders
    that have ``state_dict``: torchdata's, or ``ResumableLoader``.
    """

    def __init__(self, directory: str, **options: Any) -> None:
        self.folders = Folders(directory, made_by={"lightning": __version__}, **options)
        self._resumed: Optional[Dict[str, Any]] = None

    def resume_from(self, allow_restart: bool = False) -> Optional[str]:
        """Return the file for ``fit(ckpt_path=...)``; None when none was ever recorded."""
        saved = self.folders.resume_point(allow_restart)
        return saved.file(FILE) if saved is not None else None

    def state_dict(self) -> Dict[str, Any]:
        return {"rng": rng.capture()}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._resumed = state_dict.get("rng")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._resumed is not None:  # here, because what the trainer sets up before draws numbers of its own
            rng.restore(self._resumed)
            self._resumed = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        reason = self.folders.due(trainer.global_step)
        if not reason:
            return
        metrics = {k: v for k, v in trainer.callback_metrics.items() if hasattr(v, "item")}
        self.folders.save(trainer.global_step, lambda path: trainer.save_checkpoint(os.path.join(path, FILE)), metrics)
        if reason == "SIGTERM":
            self.folders.stop()
            trainer.should_stop = True

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self.folders.writer.wait()

    def close(self) -> None:
        """Commit what is in flight and give the directory back."""
        self.folders.close()
