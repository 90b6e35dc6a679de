"""The fixture `says` fails where words are not those of tests/messages.json."""

import pytest

import conftest


@pytest.fixture
def unpinned(request):
    return request.getfixturevalue("says")  # not by its name, so that --renew-messages leaves these tests out


def test_words_that_nobody_pinned_fail(unpinned):
    with pytest.raises(AssertionError, match="run make snapshots"), unpinned(ValueError):
        raise ValueError("new words")


def test_other_words_than_the_pinned_ones_fail(unpinned, request, monkeypatch, tmp_path):
    monkeypatch.setitem(conftest.PINNED, conftest.key_of(request.node), ["the old words", "and more"])
    with pytest.raises(AssertionError, match="the old words"), unpinned(ValueError):
        raise ValueError("other words")
    with unpinned(ValueError):
        raise ValueError("and more")
