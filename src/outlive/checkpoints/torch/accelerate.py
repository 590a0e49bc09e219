"""Accelerate: ``save_state`` and ``load_state``, with our commit.

keep = AcceleratorCheckpoints(accelerator, "out/ckpt")
accelerator.register_for_checkpointing(scheduler, loader)   # loader: a ResumableLoader around the prepared one
step = keep.resume()
...
keep.maybe_save(step + 1)
"""

from typing import Any, Dict, Optional

from outlive.checkpoints.torch.folders import Folders


class AcceleratorCheckpoints:
    """Saves everything that was prepared or registered with an ``Accelerator``. Takes the options of ``Folders``."""

    def __init__(self, accelerator: Any, directory: str, **options: Any) -> None:
        self.accelerator = accelerator
        self.folders = Folders(directory, **options)

    def resume(self, allow_restart: bool = False) -> int:
        """Load the newest good checkpoint and return its step; 0 when none was ever recorded."""
        saved = self.folders.resume_point(allow_restart)
        if saved is None:
            return 0
        self.accelerator.load_state(saved.path)
        return saved.record.step

    def maybe_save(self, step: int, metrics: Optional[Dict[str, Any]] = None) -> str:
        """Call after each step; returns why it saved, or "". After SIGTERM it saves and passes the signal on."""
        reason = self.folders.due(step)
        if reason:
            self.save(step, metrics)
        if reason == "SIGTERM":
            self.folders.stop()
        return reason

    def save(self, step: int, metrics: Optional[Dict[str, Any]] = None) -> None:
        """Save now."""
        self.folders.save(step, lambda path: self.accelerator.save_state(path), metrics)

    def close(self) -> None:
        """Commit what is in flight and give the directory back."""
        self.folders.close()
