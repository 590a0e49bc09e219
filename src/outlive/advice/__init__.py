"""The home half of diagnosis: the pages of the rules and all that is said in prose. Opens no connection."""
