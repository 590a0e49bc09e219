"""What turns a command into detached work: the contract, and one file for each scheduler."""
