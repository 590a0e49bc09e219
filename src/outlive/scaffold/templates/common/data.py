"""Tokens from text, nanoGPT's .bin files (.bin32: 32 bit) or `hf:NAME` data. A step's number says what it trains on.

Nothing has to be remembered: sequence ``i`` of step ``s`` is drawn from (seed, s, i) alone, so a resumed run, on any
number of processes, sees exactly the sequences that an undisturbed one sees.
"""

import hashlib
import os
import sys

import torch

BYTES = 256
"""Tokens of plain text are its bytes: nothing to train or download, 256 of them."""


class Source:
    """One file of tokens, cut into a part to train on and a part to evaluate on."""

    def __init__(self, path, val_share, block_size):
        if path.startswith("hf:"):
            path = fetched(path[3:])
        try:
            size = os.path.getsize(path)
        except OSError as error:
            sys.exit(f"data file {path} cannot be read: {error.strerror}")
        if path.endswith(".bin"):
            self.tokens = torch.from_file(path, dtype=torch.int16, size=size // 2) if size > 1 else torch.empty(0)
            self.mask = 0xFFFF  # nanoGPT writes unsigned 16 bit numbers
        elif path.endswith(".bin32"):  # for vocabularies above 65,536
            self.tokens = torch.from_file(path, dtype=torch.int32, size=size // 4) if size > 3 else torch.empty(0)
            self.mask = 0x7FFFFFFF
        else:
            self.tokens = torch.from_file(path, dtype=torch.uint8, size=size) if size else torch.empty(0)
            self.mask = 0xFF
        cut = int(len(self.tokens) * (1.0 - val_share))
        self.spans = {"train": (0, cut), "val": (cut, len(self.tokens))}
        for split, (begin, end) in self.spans.items():
            if end - begin < block_size + 1:
                sys.exit(
                    f"data file {path} holds {len(self.tokens)} tokens, {end - begin} of them for {split}: "
                    f"at least {block_size + 1} are needed there (block_size + 1)"
                )

    def at(self, split, share, length):
        """Return ``length`` tokens that begin at a share (0 to 1) of the split."""
        begin, end = self.spans[split]
        start = begin + int(share * (end - begin - length))
        return self.tokens[start : start + length].long() & self.mask


def fetched(name):
    """Return a local text file with the data set ``name`` or ``name:column``; made once, needs the network."""
    path = os.path.join("data", "hf-" + hashlib.sha256(name.encode()).hexdigest()[:12] + ".txt")
    if not os.path.exists(path):
        try:
            import datasets
        except ImportError:
            sys.exit("hf: data needs the package: pip install datasets")
        name, _, column = name.partition(":")
        os.makedirs("data", exist_ok=True)
        with open(path + ".tmp", "w", encoding="utf-8") as handle:
            for row in datasets.load_dataset(name, split="train", streaming=True):
                handle.write(row[column or "text"] + "\n")
        os.replace(path + ".tmp", path)
    return path


class Mix:
    """The sources of all phases."""

    def __init__(self, phases, val_share, block_size, seed):
        self.phases, self.block_size, self.seed = phases, block_size, seed
        names = {name for phase in phases for name in phase["data"]}
        self.sources = {name: Source(name, val_share, block_size) for name in sorted(names)}

    def batch(self, split, phase, step, first, count):
        """Return (x, y): sequences ``first`` to ``first + count`` of a step, each of block_size tokens."""
        names, weights = zip(*self.phases[phase]["data"].items())
        rows = []
        for number in range(first, first + count):
            seed = hashlib.sha256(f"{self.seed} {split} {step} {number}".encode()).digest()
            draw = torch.Generator().manual_seed(int.from_bytes(seed[:7], "little"))
            which = int(torch.multinomial(torch.tensor(weights), 1, generator=draw))
            share = float(torch.rand((), generator=draw, dtype=torch.float64))
            rows.append(self.sources[names[which]].at(split, share, self.block_size + 1))
        both = torch.stack(rows)
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()
