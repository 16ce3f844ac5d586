"""The ClientApp that `flwr run` starts at every client: it passes messages on to the client's own process.

fedrelay.remote.flower.client:app
"""

from __future__ import annotations

import logging
from dataclasses import replace

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedrelay.errors import BadInput
from fedrelay.remote.flower.calling import asked
from fedrelay.remote.flower.node import Node, node_of
from fedrelay.remote.flower.records import Parcel, packed, unpacked
from fedrelay.remote.refusals import told_of

LOG = logging.getLogger("fedrelay")


def answer(message: Message, context: Context) -> Message:
    """What the client answers, or why it does not take part."""
    return Message(packed(_answered(message, context)), reply_to=message)


def _answered(message: Message, context: Context) -> Parcel:
    """Whatever goes wrong, Flower is not let to tell of it: its words would be those of the error."""
    try:
        return _answer(replace(unpacked(message.content), origin=context.run_id), context)
    except Exception as error:
        LOG.exception("this client could not answer")
        return Parcel(declined=told_of(error))


def _answer(parcel: Parcel, context: Context) -> Parcel:
    """Why it does not take part is told to the server only as far as it names none of the client's files."""
    try:
        node = node_of(context.node_config, context.run_config, id=context.node_id)
    except BadInput as error:  # of what the node was started with, of which the server knows some
        LOG.error("this client cannot take part: %s", error)
        return Parcel(declined=str(error))
    try:
        return Parcel(_here(node, parcel) if node.simulated else asked(node, parcel))
    except BadInput as error:
        LOG.error("this client cannot take part: %s", error)
        return Parcel(declined=f"{node.name}: {told_of(error)}")


def _here(node: Node, parcel: Parcel) -> bytes:
    """In this process, which stays: simulated nodes share it."""
    from fedrelay.remote.flower import resident

    return resident.attendant_of(node).answer(parcel)


app = ClientApp()
app.query()(answer)
app.train()(answer)
