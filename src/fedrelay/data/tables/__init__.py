"""Tables of one's own: read, typed, and prepared by statistics that clients send instead of rows."""
