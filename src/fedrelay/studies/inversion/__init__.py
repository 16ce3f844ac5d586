"""What examples a client has trained on, made again from the models before and after its visit."""
