"""A run among real machines: the server, its clients, and how they know one another."""
