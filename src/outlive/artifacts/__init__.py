"""What a run leaves behind: digests, manifests, and checks that a file is whole without any framework."""
