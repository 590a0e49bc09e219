"""``lint-train``: static checks of training code. Reads files, runs nothing of what it reads."""
