"""Whether somebody can tell which examples a client has trained on, from the models that they see."""
