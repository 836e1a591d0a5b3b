from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import EnvironmentFault, UsageError
from motet.swarm.identity.keys import NodeKey, fingerprint, parse_fingerprint, short, verify, write_secret

# RFC 8032, section 7.1, TEST 2
SECRET = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
ORDER = 2**252 + 27742317777372353535851937790883648493


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        NodeKey.load(path)
    assert caught.value.code == "E-KEY-01"
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- signing


def test_the_numbers_of_the_standard() -> None:
    key = NodeKey.from_secret(SECRET)
    assert key.public == PUBLIC
    assert key.secret == SECRET
    assert key.sign(b"\x72") == SIGNATURE
    assert verify(PUBLIC, b"\x72", SIGNATURE)


@pytest.mark.parametrize("position", [0, 31, 32, 63])
def test_one_changed_bit_of_a_signature_is_noticed(position: int) -> None:
    forged = bytearray(SIGNATURE)
    forged[position] ^= 1
    assert not verify(PUBLIC, b"\x72", bytes(forged))


def test_other_data_and_another_key_are_noticed() -> None:
    assert not verify(PUBLIC, b"\x73", SIGNATURE)
    assert not verify(NodeKey.generate().public, b"\x72", SIGNATURE)


def test_a_signature_has_one_form() -> None:
    """Adding the group's order to its second half would be the same point, and another message to whoever compares."""
    again = int.from_bytes(SIGNATURE[32:], "little") + ORDER
    assert not verify(PUBLIC, b"\x72", SIGNATURE[:32] + again.to_bytes(32, "little"))


def test_a_key_under_which_anybody_can_sign_is_none() -> None:
    one, nobodys = b"\x01" + bytes(31), b"\x01" + bytes(63)
    Ed25519PublicKey.from_public_bytes(one).verify(nobodys, b"anything")  # the library takes it
    assert not verify(one, b"anything", nobodys)
    assert not verify(one[:31] + b"\x80", b"anything", nobodys)


@given(public=st.binary(max_size=40), data=st.binary(max_size=40), signature=st.binary(max_size=80))
def test_verify_never_raises(public: bytes, data: bytes, signature: bytes) -> None:
    assert not verify(public, data, signature)
    assert not verify(PUBLIC, data, signature)
    assert not verify(public[:32].ljust(32, b"\0"), data, signature[:64].ljust(64, b"\0"))


def test_new_keys_differ() -> None:
    assert NodeKey.generate().public != NodeKey.generate().public


def test_it_shows_its_public_half_only() -> None:
    key = NodeKey.from_secret(SECRET)
    assert repr(key) == f"NodeKey({fingerprint(PUBLIC)})"
    with pytest.raises(TypeError):
        pickle.dumps(key)


# --- how a public key is written


@given(st.binary(min_size=32, max_size=32))
def test_a_fingerprint_reads_back(public: bytes) -> None:
    assert parse_fingerprint(fingerprint(public)) == public
    assert fingerprint(public)[8:16] == short(public)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519:",
        "ed25519:" + "0" * 63,
        "ed25519:" + "0" * 65,
        "ed25519:" + "A" * 64,
        "0" * 64,
        "ed25519:" + " 0" * 32,
    ],
)
def test_what_is_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError, match="64 hex digits"):
        parse_fingerprint(text)


# --- key files


def test_a_key_file_is_made_once_and_read_ever_after(tmp_path: Path) -> None:
    path = tmp_path / "keys/run/small.pem"
    made = NodeKey.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert NodeKey.load_or_create(path).public == made.public
    assert NodeKey.load(path).public == made.public
    assert [file.name for file in path.parent.iterdir()] == ["small.pem"]


def test_it_is_an_ordinary_pem_file(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    made = NodeKey.load_or_create(path)
    said = subprocess.run(
        ["openssl", "pkey", "-in", path, "-pubout", "-outform", "DER"], capture_output=True, check=True
    )
    assert said.stdout.endswith(made.public)


def test_those_who_make_it_at_once_end_with_one_key(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: NodeKey.load_or_create(path).public, range(16)))
    assert set(keys) == {NodeKey.load(path).public}
    assert [file.name for file in tmp_path.iterdir()] == ["key.pem"]


def pem(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | Ed25519PrivateKey, password: bytes | None = None
) -> bytes:
    how = NoEncryption() if password is None else BestAvailableEncryption(password)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)


def test_a_file_that_is_no_such_key_says_what_it_should_be(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    good = NodeKey.generate().to_pem()
    for content, word in [
        (b"", "damaged"),
        (b"\xff\xfe\0", "damaged"),
        (good[:60], "damaged"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "another kind"),
        (pem(Ed25519PrivateKey.generate(), b"secret"), "passphrase"),
        (b"x" * 20_000, "too large"),
    ]:
        path.unlink(missing_ok=True)
        write_secret(path, content, replace=True)
        said = refusal(path)
        assert word in said
        assert "PKCS#8 in PEM" in said
        assert good.splitlines()[1].decode() not in said


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.pem")
    tmp_path.chmod(0o700)
    assert "Is a directory" in refusal(tmp_path)


def test_a_key_that_others_may_read_is_refused_until_they_may_not(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    made = NodeKey.load_or_create(path)
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        assert f"chmod 600 {path}" in refusal(path)
    path.chmod(0o400)
    assert NodeKey.load(path).public == made.public


def test_where_no_key_can_be_written_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot be") as caught:
        NodeKey.load_or_create(tmp_path / "file/key.pem")
    assert caught.value.code == "E-KEY-01"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_somebody_elses_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        NodeKey.load_or_create(tmp_path / "key.pem")


def test_a_secret_file_is_replaced_only_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path, b"one", replace=False)
    with pytest.raises(FileExistsError):
        write_secret(path, b"two", replace=False)
    assert path.read_bytes() == b"one"
    write_secret(path, b"two", replace=True)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]


def test_without_the_package_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from motet.errors import EnvironmentFault\n"
        "from motet.swarm.identity.keys import NodeKey, verify\n"
        "for call in (NodeKey.generate, lambda: verify(bytes(32), b'', bytes(64))):\n"
        "    try: call()\n"
        "    except EnvironmentFault as error: print(error.code, error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.count("E-KEY-02") == 2
    assert said.count("pip install 'motet[swarm]'") == 2
    assert EnvironmentFault.exit_code == 3
