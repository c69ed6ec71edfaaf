"""Identities, their files, and public keys."""

import pickle

import noctule
import pytest


def test_an_identity_is_found_again_in_its_file(tmp_path):
    path = tmp_path / "key"
    identity = noctule.Identity.generate()
    identity.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert noctule.Identity.load(str(path)).public_key == identity.public_key
    with pytest.raises(FileExistsError):
        identity.save(path)
    assert "secret" not in repr(identity) and str(identity.public_key) in repr(identity)


def test_a_file_that_is_not_there_is_made_only_when_asked_for(tmp_path):
    path = tmp_path / "key"
    with pytest.raises(FileNotFoundError) as told:
        noctule.Identity.load(path)
    assert told.value.filename == str(path) or told.value.filename == path
    made = noctule.Identity.load(path, create=True)
    assert noctule.Identity.load(path, create=True).public_key == made.public_key


def test_a_file_that_others_can_read_is_no_secret(tmp_path):
    path = tmp_path / "key"
    noctule.Identity.generate().save(path)
    path.chmod(0o640)
    with pytest.raises(PermissionError, match="chmod 600"):
        noctule.Identity.load(path)
    path.chmod(0o600)
    path.write_text("nonsense")
    with pytest.raises(ValueError, match="key"):
        noctule.Identity.load(path)


def test_public_keys_are_values():
    one, two = noctule.Identity.generate().public_key, noctule.Identity.generate().public_key
    same = noctule.PublicKey(str(one))
    assert one == same and hash(one) == hash(same) and one != two and one != str(one)
    assert len({one, same, two}) == 2
    assert len(str(one)) == 56 and len(one.fingerprint().split("-")) == 6
    assert repr(one) == f"PublicKey('{one}')"
    for bad in ("", str(one)[:-1], one.fingerprint()):
        with pytest.raises(ValueError):
            noctule.PublicKey(bad)
    with pytest.raises(ValueError, match="secret"):
        noctule.PublicKey("secret-" + str(one))


def test_secrets_are_not_pickled():
    with pytest.raises(TypeError):
        pickle.dumps(noctule.Identity.generate())
