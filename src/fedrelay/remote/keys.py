"""Keys: an authority that vouches for a server and its clients, and the list of the clients that are known.

A folder of keys has authority.key and authority.pem, server.key and server.pem, clients.json (who is known, by the
fingerprint of the certificate, and who was revoked), and for every client a folder clients/NAME, which is carried to
it: client.key, client.pem and authority.pem. To serve, authority.key is not needed: it can be kept elsewhere.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedrelay.errors import BadInput, within
from fedrelay.system import files

AUTHORITY, SERVER, CLIENT, CLIENTS, KITS = "authority", "server", "client", "clients.json", "clients"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
DAYS = 365
AUTHORITY_DAYS = 3650
EARLY = timedelta(days=1)
"""Certificates are valid from yesterday on: clocks differ."""
LONGEST = 1 << 20

PrivateKey = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Known:
    """A client that has, or had, a key."""

    name: str
    sha256: str
    expires: str
    revoked: bool = False

    @property
    def state(self) -> str:
        """In words."""
        if self.revoked:
            return "revoked"
        return "expired" if datetime.fromisoformat(self.expires) < datetime.now(UTC) else "valid"


# --- making


def make(folder: Path, *, hosts: Sequence[str], clients: Sequence[str], days: int = DAYS) -> None:
    """An authority, a server that is found under these names or addresses, and clients."""
    check_names(clients)
    if not hosts:
        raise BadInput("--server: name the host or address under which clients find the server")
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder.resolve()} is not empty; nothing was overwritten: name another folder, or `keys add`")
    private_folder(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"fedrelay {os.urandom(4).hex()}")
    certificate = (
        _begun(name, name, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_pair(folder, AUTHORITY, key, certificate)
    renew_server(folder, hosts=hosts, days=days)
    write_known(folder, {})
    add(folder, clients, days=days)


def renew_server(folder: Path, *, hosts: Sequence[str] = (), days: int = DAYS) -> None:
    """A new key for the server; without hosts, for those that it had."""
    hosts = hosts or hosts_of(_certificate(folder / f"{SERVER}.pem"))
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    _write_pair(folder, SERVER, *_issued(folder, hosts[0], days, ExtendedKeyUsageOID.SERVER_AUTH, names))


def add(folder: Path, clients: Sequence[str], *, days: int = DAYS) -> None:
    """Keys for more clients; one that has some already is refused."""
    check_names(clients)
    known = read_known(folder)
    for name in clients:
        if name in known:
            raise BadInput(f"{name} has keys already: `keys renew` makes new ones")
    for name in clients:
        known[name] = _equip(folder, name, days)
    write_known(folder, known)


def renew(folder: Path, name: str, *, days: int = DAYS) -> None:
    """New keys for a client; the old ones are refused from now on."""
    known = read_known(folder)
    _need(known, name)
    known[name] = _equip(folder, name, days)
    write_known(folder, known)


def revoke(folder: Path, name: str) -> None:
    """Refuse a client's keys from now on."""
    known = read_known(folder)
    known[name] = replace(_need(known, name), revoked=True)
    write_known(folder, known)


def _equip(folder: Path, name: str, days: int) -> Known:
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    key, certificate = _issued(folder, name, days, ExtendedKeyUsageOID.CLIENT_AUTH, names)
    kit = folder / KITS / name
    private_folder(kit.parent)
    private_folder(kit)
    _write_pair(kit, CLIENT, key, certificate)
    files.write(kit / f"{AUTHORITY}.pem", (folder / f"{AUTHORITY}.pem").read_bytes(), mode=files.PRIVATE)
    return Known(name, fingerprint(certificate), certificate.not_valid_after_utc.isoformat())


def _issued(
    folder: Path, name: str, days: int, use: x509.ObjectIdentifier, names: x509.SubjectAlternativeName
) -> tuple[PrivateKey, x509.Certificate]:
    """A new key, and the authority's word that it is this one's."""
    within("--days", days, least=1, most=AUTHORITY_DAYS)
    authority, signing = _certificate(folder / f"{AUTHORITY}.pem"), _key(folder / f"{AUTHORITY}.key")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _begun(_name(name), authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(names, critical=False)
        .sign(signing, hashes.SHA256())
    )
    return key, certificate


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - EARLY).not_valid_after(now + timedelta(days=days))


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    never = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=True, key_cert_sign=sign_certificates, crl_sign=sign_certificates, **never)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_pair(folder: Path, name: str, key: PrivateKey, certificate: x509.Certificate) -> None:
    raw = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files.write(folder / f"{name}.key", raw, mode=files.PRIVATE)
    files.write(folder / f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM), mode=files.PRIVATE)


def private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=files.PRIVATE_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror or error}): name another folder") from None


# --- reading


def read_known(folder: Path) -> dict[str, Known]:
    """All clients that have, or had, keys."""
    path = folder / CLIENTS
    try:
        found = json.loads(_read(path))
        return {name: Known(**{"name": name, **entry}) for name, entry in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is damaged ({error}): put back an intact copy, or make the keys anew") from None


def write_known(folder: Path, known: Mapping[str, Known]) -> None:
    plain: dict[str, Any] = {}
    for name, entry in sorted(known.items()):
        plain[name] = {key: value for key, value in asdict(entry).items() if key != "name"}
    files.write(folder / CLIENTS, (json.dumps(plain, indent=2) + "\n").encode(), mode=files.PRIVATE)


def why_not(folder: Path, name: str, pem: str) -> str | None:
    """Why a client with this name and certificate may not come; None if it may. The list is read anew every time."""
    known = read_known(folder)
    entry = known.get(name)
    if entry is None:
        return f"the server does not know the key of {name!r:.80}: `fedrelay keys add` at the server makes one"
    if entry.revoked:
        return f"the key of {name} was revoked: `fedrelay keys renew` at the server makes a new one"
    certificate = x509.load_pem_x509_certificate(pem.encode())
    if fingerprint(certificate) != entry.sha256:
        return f"{name} has newer keys than these: carry the folder {KITS}/{name} to the client again"
    return None


def valid_names(folder: Path) -> tuple[str, ...]:
    """The clients whose keys are not revoked."""
    return tuple(name for name, entry in sorted(read_known(folder).items()) if not entry.revoked)


def fingerprint(certificate: x509.Certificate) -> str:
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Under which names and addresses a server is found."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names)


def server_facts(folder: Path) -> tuple[tuple[str, ...], datetime]:
    """Where the server of these keys is found, and until when they are valid."""
    certificate = _certificate(folder / f"{SERVER}.pem")
    return hosts_of(certificate), certificate.not_valid_after_utc


def server_credentials(folder: Path) -> Any:
    """What gRPC needs to serve; keys that are missing or not valid now are refused."""
    server_key(folder)
    read_known(folder)
    pair = _read(folder / f"{SERVER}.key", secret=True), _read(folder / f"{SERVER}.pem")
    authority = _read(folder / f"{AUTHORITY}.pem")
    return grpc.ssl_server_credentials([pair], root_certificates=authority, require_client_auth=True)


def client_credentials(folder: Path) -> tuple[Any, str]:
    """What gRPC needs to join, and the name in the certificate."""
    certificate = check_client(folder)
    _key_of(certificate, folder / f"{CLIENT}.key")
    key, chain = _read(folder / f"{CLIENT}.key", secret=True), _read(folder / f"{CLIENT}.pem")
    authority = _read(folder / f"{AUTHORITY}.pem")
    return grpc.ssl_channel_credentials(authority, key, chain), owner_of(certificate)


def owner_of(certificate: x509.Certificate) -> str:
    """The name in a certificate; empty if there is none."""
    return next((str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


def server_key(folder: Path) -> PrivateKey:
    """The server's private key, if its certificate is valid now."""
    return _key_of(check_server(folder), folder / f"{SERVER}.key")


def check_server(folder: Path) -> x509.Certificate:
    """The server's certificate, if it is valid now."""
    return check_valid(folder / f"{SERVER}.pem", f"`fedrelay keys renew {folder}` makes a new one")


def vouched_for(folder: Path, certificate: x509.Certificate) -> bool:
    """Whether the authority that a client has in its folder has given this certificate to a server."""
    authority = _certificate(folder / f"{AUTHORITY}.pem")
    try:
        certificate.verify_directly_issued_by(authority)
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return ExtendedKeyUsageOID.SERVER_AUTH in uses


def client_key(folder: Path) -> PrivateKey:
    """A client's private key, if its certificate is valid now."""
    return _key_of(check_client(folder), folder / f"{CLIENT}.key")


def check_client(folder: Path) -> x509.Certificate:
    """A client's certificate, if it is valid now."""
    return check_valid(folder / f"{CLIENT}.pem", "ask for a new one: `fedrelay keys renew` at the server")


def check_valid(path: Path, remedy: str) -> x509.Certificate:
    """A certificate that is valid now."""
    certificate, now = _certificate(path), datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        raise BadInput(f"{path} has expired on {certificate.not_valid_after_utc:%Y-%m-%d}: {remedy}")
    if now < certificate.not_valid_before_utc:
        raise BadInput(
            f"{path} is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on, and this machine's clock "
            f"says {now:%Y-%m-%d %H:%M}: set the clock"
        )
    return certificate


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise BadInput(f"{path} is no certificate ({error}): put back an intact copy") from None


def _key(path: Path) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(_read(path, secret=True), password=None)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path} is no key ({error}): put back an intact copy") from None
    if not isinstance(key, PrivateKey):
        raise BadInput(f"{path} is a key of another kind than ours (elliptic curve): put back an intact copy")
    return key


def _key_of(certificate: x509.Certificate, path: Path) -> PrivateKey:
    """The key of a certificate; one of another would fail at every connection, and nobody would be told why."""
    key = _key(path)
    if key.public_key() != certificate.public_key():
        raise BadInput(f"{path} is not the key of the certificate beside it: put back what was made together")
    return key


def _read(path: Path, *, secret: bool = False) -> bytes:
    try:
        found = path.stat()
        if secret and os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
            raise BadInput(f"{path} can be read by others than its owner: chmod 600 it")
        if found.st_size > LONGEST:
            raise BadInput(f"{path} is too long for a key: put back an intact copy")
        return path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path} is missing: expected a folder that `fedrelay keys make` has written") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): expected a file of keys") from None


def check_names(names: Sequence[str]) -> None:
    """Refuse what cannot be a client's name, and one that comes twice."""
    for name in names:
        if not NAME.fullmatch(name):
            raise BadInput(f"{name!r:.80} cannot be a client's name: letters, digits, dots, dashes and underscores can")
        if names.count(name) > 1:
            raise BadInput(f"{name} is named twice: every client needs a name of its own")


def _need(known: Mapping[str, Known], name: str) -> Known:
    if name not in known:
        raise BadInput(f"there is no client {name!r:.80} (known: {', '.join(known) or 'none'})")
    return known[name]
