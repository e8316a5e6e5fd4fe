"""The error tree."""

from __future__ import annotations

import json
import pickle

import pytest

from remit import errors
from remit.errors import RemitError

LEAVES = [getattr(errors, name) for name in errors.__all__ if issubclass(getattr(errors, name), RemitError)]


@pytest.mark.parametrize("kind", LEAVES)
def test_an_error_survives_pickle_and_json(kind: type[RemitError]) -> None:
    """Every error goes through pickle as it is, and is JSON with its code."""
    error = kind("what happened", param="x", limit_code="tokens")
    assert pickle.loads(pickle.dumps(error)) == error
    shown = json.loads(json.dumps(error.to_json()))
    assert shown["code"] == kind.code
    assert shown["message"] == "what happened"


def test_codes_are_unique() -> None:
    """A code names one error."""
    codes = [kind.code for kind in LEAVES]
    assert len(set(codes)) == len(codes)


def test_the_tree_in_words_is_the_tree() -> None:
    """The drawing at the top of the module names every class."""
    assert errors.__doc__ is not None
    for kind in LEAVES:
        assert kind.__name__ in errors.__doc__


def test_only_an_expired_run_is_a_timeout_too() -> None:
    """A caller whose own deadline passed catches it as a TimeoutError, and no other cancel as one."""
    assert issubclass(errors.RunExpired, errors.RunCancelled)
    assert issubclass(errors.RunExpired, TimeoutError)
    assert not issubclass(errors.RunCancelled, TimeoutError)
