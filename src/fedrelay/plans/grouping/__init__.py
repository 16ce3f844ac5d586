"""From what is known of the clients to groups of them: traits, distances, groupers."""
