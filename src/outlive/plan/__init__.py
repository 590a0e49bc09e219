"""Does it fit, how fast is it, what does it cost: arithmetic over values the caller brings. Opens no connection."""
