"""Keys: who is let in, who is not, and what both are told."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from needs import needed, posix

from fedrelay import BadInput
from fedrelay.cli.main import main

needed("cryptography")
keys = needed("fedrelay.remote.keys")


@pytest.fixture
def folder(tmp_path):
    keys.make(tmp_path / "keys", hosts=["127.0.0.1", "localhost"], clients=["south", "north"])
    return tmp_path / "keys"


def pem_of(folder, name: str) -> str:
    return (folder / "clients" / name / "client.pem").read_text(encoding="utf-8")


@posix
def test_keys_are_readable_by_their_owner_only(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 5 + 2 * 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.rglob("*"))


def test_certificates_verify_against_the_authority_and_no_other(folder, tmp_path):
    x509 = needed("cryptography.x509")
    authority = x509.load_pem_x509_certificate((folder / "authority.pem").read_bytes())
    certificate = x509.load_pem_x509_certificate(pem_of(folder, "north").encode())
    certificate.verify_directly_issued_by(authority)
    keys.make(tmp_path / "others", hosts=["h"], clients=["north"])
    other = x509.load_pem_x509_certificate(pem_of(tmp_path / "others", "north").encode())
    with pytest.raises(ValueError, match="does not match"):
        other.verify_directly_issued_by(authority)


def test_who_is_unknown_revoked_or_has_old_keys_is_told_why(folder):
    old = pem_of(folder, "north")
    assert keys.why_not(folder, "north", old) is None
    assert "does not know the key of 'west'" in keys.why_not(folder, "west", old)
    keys.revoke(folder, "north")
    assert "was revoked" in keys.why_not(folder, "north", old)
    assert keys.valid_names(folder) == ("south",)
    keys.renew(folder, "north")
    assert "has newer keys than these" in keys.why_not(folder, "north", old)
    assert keys.why_not(folder, "north", pem_of(folder, "north")) is None
    keys.add(folder, ["west"])
    assert keys.valid_names(folder) == ("north", "south", "west")


def test_keys_that_are_not_valid_now_are_refused_before_anything_is_sent(folder, monkeypatch):
    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=400)

    class Earlier(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(days=2)

    monkeypatch.setattr(keys, "datetime", Later)
    with pytest.raises(BadInput, match=r"has expired on .*: ask for a new one"):
        keys.client_credentials(folder / "clients" / "north")
    with pytest.raises(BadInput, match=r"has expired on .*renew"):
        keys.server_credentials(folder)
    monkeypatch.setattr(keys, "datetime", Earlier)
    with pytest.raises(BadInput, match="this machine's clock says"):
        keys.client_credentials(folder / "clients" / "north")


def test_a_clock_an_hour_off_does_not_matter(folder, monkeypatch):
    class HourBehind(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(hours=1)

    monkeypatch.setattr(keys, "datetime", HourBehind)
    assert keys.client_credentials(folder / "clients" / "north")[1] == "north"


def test_the_command_makes_lists_revokes_and_renews(tmp_path, capsys):
    folder = str(tmp_path / "keys")
    assert main(["keys", "make", folder, "--server", "relay.example,10.0.0.1", "--clients", "b,a"]) == 0
    assert main(["keys", "add", folder, "c"]) == 0
    assert main(["keys", "revoke", folder, "a"]) == 0
    assert main(["keys", "renew", folder, "b", "--days", "30"]) == 0
    assert main(["keys", "renew", folder]) == 0
    capsys.readouterr()
    assert main(["keys", "list", folder]) == 0
    said = capsys.readouterr().out
    assert "relay.example" in said
    assert "10.0.0.1" in said
    known = json.loads((tmp_path / "keys" / "clients.json").read_text(encoding="utf-8"))
    assert [name for name, entry in known.items() if entry["revoked"]] == ["a"]
    until = datetime.fromisoformat(known["b"]["expires"])
    assert timedelta(days=29) < until - datetime.now(UTC) < timedelta(days=31)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["make", "NEW", "--clients", "a"], "--server: name the host"),
        (["make", "NEW", "--server", "h", "--clients", "a,a"], "a is named twice"),
        (["make", "NEW", "--server", "h", "--clients", "../a"], "cannot be a client's name"),
        (["make", "NEW", "--server", "h", "--clients", "a", "--days", "0"], "--days must be at least 1"),
        (["make", "KEYS", "--server", "h", "--clients", "a"], "is not empty; nothing was overwritten"),
        (["add", "KEYS", "north"], "north has keys already"),
        (["revoke", "KEYS", "nobody"], "there is no client 'nobody' (known: north, south)"),
        (["list", "NEW"], "is missing: expected a folder that `fedrelay keys make` has written"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words, says, folder, tmp_path, capsys):
    places = {"NEW": str(tmp_path / "new"), "KEYS": str(folder)}
    assert main(["keys", *(places.get(word, word) for word in words)]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("whose", ["server", "client"])
def test_a_key_that_is_not_of_the_certificate_beside_it_is_refused(whose, folder):
    """Else gRPC would fail at every connection, and say that a port is in use, or nothing."""
    kits = folder / "clients"
    place, read = (folder, keys.server_credentials) if whose == "server" else (kits / "north", keys.client_credentials)
    (kits / "south" / "client.key").replace(place / f"{whose}.key")
    with pytest.raises(BadInput, match=rf"{whose}.key is not the key of the certificate beside it"):
        read(place)


@posix
def test_a_key_that_others_can_read_is_refused(folder):
    (folder / "clients" / "north" / "client.key").chmod(0o644)
    with pytest.raises(BadInput, match="can be read by others than its owner: chmod 600 it"):
        keys.client_credentials(folder / "clients" / "north")
