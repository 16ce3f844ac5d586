"""What happens at a client: pieces of Work."""
