"""The engine whose clients are elsewhere: it sends every visit over a wire, and never sees how that works."""

from fedrelay.engines.remote.engine import Patience, Remote
from fedrelay.engines.remote.wire import Answered, Broken, Came, Event, Gone, Wire

__all__ = ["Answered", "Broken", "Came", "Event", "Gone", "Patience", "Remote", "Wire"]
