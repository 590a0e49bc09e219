"""Training projects: templates as files, and what `outlive new` does with them."""
