"""Proof of who is who, where certificates are not part of the connection: the server signs what it sends, and a client
what the server asks."""

from __future__ import annotations

import hashlib
import json
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedrelay.errors import BadInput
from fedrelay.remote import keys
from fedrelay.remote.reception import Refused, need
from fedrelay.remote.refusals import NotMeant

PURPOSE = b"fedrelay: I take part, asked by "
"""A signature for this is good for nothing else."""
ASKING = b"fedrelay: the server asks "
SCHEME = ec.ECDSA(hashes.SHA256())
PROOF = {"certificate": str, "signature": str}


def new_challenge() -> str:
    """What nobody has been asked before."""
    return secrets.token_hex(32)


def statement(challenge: str, node: int) -> bytes:
    """What is signed: of which node, too, so that no other can show the signature as its own."""
    return PURPOSE + f"{challenge} as node {node}".encode()


def proof_of(folder: Path, challenge: str, *, name: str, node: int) -> dict[str, str]:
    """The certificate in a client's keys, and its signature."""
    certificate = keys.check_client(folder)
    owner = keys.owner_of(certificate)
    if owner != name:
        raise BadInput(
            f"{folder} has the keys of {owner!r}, and this client is called {name!r}: name it as its keys do"
        )
    signature = keys.client_key(folder).sign(statement(challenge, node), SCHEME)
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    return {"is": "proof", "certificate": pem, "signature": signature.hex()}


def proven(proof: Any, challenge: str, *, node: int) -> tuple[str, str]:
    """The name in a certificate whose owner has signed this, and the certificate (PEM); else it is refused. Whether the
    certificate is one that is known, somebody else must ask."""
    if not proof:
        raise Refused("the server asks for keys: say keys=… in --node-config, with the folder of this client's keys")
    try:
        said = need(proof, "proof", PROOF)
        certificate = x509.load_pem_x509_certificate(said["certificate"].encode())
        public = certificate.public_key()
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise TypeError("another kind of key")
        public.verify(bytes.fromhex(said["signature"]), statement(challenge, node), SCHEME)
        owner = keys.owner_of(certificate)
        valid = certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc
    except Exception:  # whatever a stranger sends: there are more kinds of errors in it than anybody can list
        raise Refused(
            "the client does not prove who it is: its signature is not of the key in its certificate"
        ) from None
    if not valid:
        raise Refused("the certificate has expired, or a clock is wrong: `fedrelay keys renew` makes a new one")
    return owner, said["certificate"]


class Asked(NamedTuple):
    """A message of the server's as it is signed: for one run and one node of Flower's, so that nobody can show the
    signature in another run, or to another node."""

    run: int
    node: int
    about: tuple[str, ...]
    """What stands beside the message."""
    message: bytes

    @property
    def statement(self) -> bytes:
        digest = hashlib.sha256(self.message).hexdigest()
        return ASKING + json.dumps([self.run, self.node, *self.about, digest]).encode()


class Signing:
    """Signs what a server sends in one run of Flower's, with the key in its folder."""

    def __init__(self, folder: Path, run: int) -> None:
        certificate = keys.check_server(folder)
        self._key, self._run = keys.server_key(folder), run
        self._pem = certificate.public_bytes(serialization.Encoding.PEM).decode()

    def __call__(self, node: int, message: bytes, *about: str) -> str:
        """The proof for one message to one node."""
        signature = self._key.sign(Asked(self._run, node, about, message).statement, SCHEME)
        return json.dumps({"is": "proof", "certificate": self._pem, "signature": signature.hex()})


def check_asked(folder: Path, proof: str, asked: Asked) -> None:
    """Refuse what the server that the authority in a client's folder vouches for has not signed."""
    if not proof:
        raise NotMeant(
            "this client has keys, and the server does not prove who it is: say keys=… in --run-config, with the "
            "folder of the server's keys"
        )
    try:
        said = need(json.loads(proof), "proof", PROOF)
        certificate = x509.load_pem_x509_certificate(said["certificate"].encode())
        public, vouched = certificate.public_key(), keys.vouched_for(folder, certificate)
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise TypeError("another kind of key")
        public.verify(bytes.fromhex(said["signature"]), asked.statement, SCHEME)
        valid = certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc
    except BadInput:  # of this client's own keys
        raise
    except Exception:  # whatever a stranger sends
        raise NotMeant(
            "the server does not prove who it is: its signature is not of the key in its certificate, or is of another "
            "message, run or node"
        ) from None
    if not vouched:
        raise NotMeant(
            "the server's certificate is none that the authority of this client's keys has given to a server: are they "
            "of the same `fedrelay keys make`?"
        )
    if not valid:
        raise NotMeant(
            "the server's certificate has expired, or a clock is wrong: `fedrelay keys renew` at the server makes one"
        )
