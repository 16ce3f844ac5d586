"""How much of the clients' images an attacker has recovered: distances of sets of images, and what they are beside."""
