"""An empty Flower app: an array goes to a node and back, again and again, to one node after the other."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

PAUSE, GOLDEN = 3.0, 0.6180339887498949
"""Every hop begins at another moment of the three seconds in which a SuperNode looks for messages once. Else hops fall
into step with it, and a tenth of a second more costs three seconds, or nothing."""


def answer(message: Message, context: Context) -> Message:
    """Other numbers, for Flower does not send again what the other side has."""
    model = message.content["arrays"]["model"].numpy()
    return Message(RecordDict({"arrays": ArrayRecord({"model": Array(model + 1)})}), reply_to=message)


def relay(grid: Grid, context: Context) -> None:
    """What every hop takes, in seconds, into a file."""
    settings, nodes, took = context.run_config, sorted(grid.get_node_ids()), []
    content = RecordDict({"arrays": ArrayRecord({"model": Array(np.zeros(int(settings["numbers"]), np.float32))})})
    for hop in range(int(settings["hops"])):
        time.sleep(PAUSE * (hop * GOLDEN % 1))
        began = time.perf_counter()
        node = nodes[hop % len(nodes)]
        asked = list(grid.push_messages([Message(content, dst_node_id=node, message_type=MessageType.TRAIN)]))
        while not (replies := list(grid.pull_messages(asked))):
            time.sleep(0.1)
        took.append(time.perf_counter() - began)
        content = replies[0].content
    part = Path(str(settings["out"])).with_suffix(".part")
    part.write_text(json.dumps(took), encoding="utf-8")
    part.rename(str(settings["out"]))


client = ClientApp()
client.train()(answer)
server = ServerApp()
server.main()(relay)
