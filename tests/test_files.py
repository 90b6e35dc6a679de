"""Files: written whole or not at all, wherever they lead; read only if they are files, and of a size that fits."""

import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from ldmnet import files
from ldmnet.errors import DataError, StateError
from ldmnet.files import (
    append_line,
    json_text,
    mend_tail,
    parse_json,
    read_bounded,
    read_json,
    read_json_lines,
    sealed_json,
    write_atomically,
    written_whole,
)

POSIX = pytest.mark.skipif(os.name == "nt", reason="there are no pipes and devices with names on Windows")


def test_a_link_stays_and_the_file_that_it_names_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    for name in ("there", "new"):
        (tmp_path / name).symlink_to(tmp_path / "far" / name)
    (tmp_path / "far" / "there").write_text("old")
    for name in ("there", "new"):
        write_atomically(tmp_path / name, name)
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "far" / name).read_text() == name
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["far", "new", "new", "there", "there"]


@POSIX
def test_a_pipe_is_written_through_and_stays(tmp_path):
    pipe, got = tmp_path / "pipe.csv", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    write_atomically(pipe, "a,b\n")
    reader.join(10)
    assert got == ["a,b\n"]
    assert pipe.is_fifo()


@POSIX
def test_a_device_is_written_through_and_stays(tmp_path):
    device = tmp_path / "null"
    device.symlink_to("/dev/null")
    write_atomically(device, "text")
    assert device.is_char_device()
    assert Path("/dev/null").is_char_device()


@pytest.mark.slow
@POSIX
@pytest.mark.parametrize("sent", [False, True], ids=["a pipe", "a file"])
def test_standard_output_is_written_where_it_stands(tmp_path, sent):
    code = (
        "from pathlib import Path; from ldmnet.files import write_atomically\n"
        "print('before'); write_atomically(Path('/dev/stdout'), 'text\\n'); print('after')"
    )
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run([sys.executable, "-c", code], stdout=out if sent else subprocess.PIPE, check=True)
    text = (tmp_path / "out").read_text() if sent else done.stdout.decode()
    assert text == "before\ntext\nafter\n"


@pytest.mark.slow
@POSIX
def test_what_a_killed_write_left_is_removed_by_the_next_and_no_list_of_files_shows_it(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from ldmnet.files import written_whole\n"
        "with written_whole(Path(sys.argv[1])) as place:\n"
        "    place.write_text('{}'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "a.jsonl"], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.glob("*.jsonl")) == []
    with written_whole(tmp_path / "b.jsonl") as place:
        place.write_text("{}")
        write_atomically(tmp_path / "c.jsonl", "{}")  # a write that is under way is not removed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.jsonl", "c.jsonl"]


def test_a_file_and_its_name_are_on_the_disk_before_the_write_ends(tmp_path, monkeypatch):
    order = []
    replace = os.replace
    monkeypatch.setattr(files.os, "fsync", lambda handle: order.append(Path(f"/proc/self/fd/{handle}").resolve()))
    monkeypatch.setattr(files.os, "replace", lambda a, b: (order.append("replace"), replace(a, b)))
    write_atomically(tmp_path / "a", "text")
    if os.name != "nt" and Path("/proc/self/fd").exists():
        assert [step if step == "replace" else step.name for step in order] == ["a", "replace", tmp_path.name]


def test_a_long_name_can_be_written(tmp_path):
    write_atomically(tmp_path / ("n" * 250), "text")
    assert [len(p.name) for p in tmp_path.iterdir()] == [250]


def test_a_folder_is_not_written_over(tmp_path):
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, "text")


def test_a_file_is_read_whole(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a") == b"12345"
    assert read_bounded(tmp_path / "a", 5) == b"12345"


@POSIX
def test_what_is_no_file_or_too_large_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "vast").open("wb") as file:
        file.truncate(2**43)  # takes no room on the disk
    for name, words in {
        "pipe": "cannot be read: it is not a regular file.",
        "": "cannot be read: Is a directory.",
        "none": "cannot be read: No such file or directory.",
        "vast": f"has 8796.1 GB, more than the {files.in_bytes(files.memory() // 2)} that can be read.",
    }.items():
        with pytest.raises(DataError, match=re.escape(f"{tmp_path / name} {words}") + "$"):
            read_bounded(tmp_path / name)
    with pytest.raises(StateError, match=r"has 8796\.1 GB, more than the 9 bytes that can be read\."):
        read_bounded(tmp_path / "vast", 9, StateError)
    with pytest.raises(DataError, match="cannot be read: embedded null byte"):
        read_bounded("a\0b")


# ---- files of lines


def lines_of(path, *values):
    for value in values:
        append_line(path, json_text(value))


def test_a_line_that_cannot_be_written_whole_is_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    lines_of(path, {"a": 1})
    whole = path.read_bytes()
    code = (
        "import resource, signal, sys; from pathlib import Path; from ldmnet.files import append_line\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(whole) + 5}, {len(whole) + 5}))\n"
        "try: append_line(Path(sys.argv[1]), 'x' * 100)\n"
        "except OSError as error: print(error.filename)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(path)
    assert path.read_bytes() == whole


def test_lines_are_on_the_disk_when_they_are_written(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files.os, "fsync", synced.append)
    lines_of(tmp_path / "a.jsonl", {"a": 1})
    assert len(synced) == 2  # the file, and the folder with its new name


@pytest.mark.parametrize(
    ("tail", "left", "told"),
    [
        (b'{"b": 2}', b'{"b": 2}\n', None),  # only its newline is missing
        (b'{"b": 2', b"", r"the last line was cut short after 7 bytes \('{\"b\": 2'\)"),
        (b"\0" * 9, b"", "the last line was cut short after 9 bytes"),
        (b"\xff", b"", "the last line was cut short after 1 bytes"),
        (b"", b"", None),
    ],
)
def test_half_a_line_at_the_end_is_left_out_and_mended_with_a_word(tmp_path, tail, left, told):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + tail)
    for act, ending in ((read_json_lines, "left out"), (mend_tail, "dropped")):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            act(path)
        right = [bool(re.search(f"{told}.* and (is|was) {ending}", str(w.message))) for w in found]
        assert right == [True] * bool(told)
    assert path.read_bytes() == b'{"a": 1}\n' + left
    lines_of(path, {"c": 3})
    assert [list(value) for value in read_json_lines(path)] == [["a"], *([["b"]] if left else []), ["c"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NaN", "NaN is no finite number"),
        ('{"a": [-Infinity]}', "-Infinity is no finite number"),
        ("1e400", "1e400 is no finite number"),
        ("1" * 22, "1{20}... is a number of more than 64 bits"),
        ("[" * 100_000, "nested too deeply"),
        (r'"\ud800"', "surrogates not allowed"),
        ("\ufeff1", "BOM"),
        ("", "Expecting value"),
    ],
)
def test_json_that_cannot_be_used(tmp_path, text, words):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=f"{path} cannot be read: .*{words}"):
        read_json(path)


def test_json_that_is_written_can_be_read(tmp_path):
    content = {"a": [1.5, float("nan"), {"b": (float("inf"), "\U0001f600")}], "c": -(2**64), "d": True}
    write_atomically(tmp_path / "a.json", json_text(content))
    assert read_json(tmp_path / "a.json") == {"a": [1.5, None, {"b": [None, "\U0001f600"]}], "c": -(2**64), "d": True}


def test_an_object_with_a_checksum_is_whole_or_refused():
    content = {"a": [1, 2.5], "hash": "0123456789ab", "b": "\u00e9"}
    text = sealed_json(content)
    assert parse_json(text) == parse_json(f"{text}\n") == content
    assert parse_json(json_text(content)) == content  # one without a checksum is taken as it is
    for place in range(len(text)):
        for bit in range(7):
            other = text[:place] + chr(ord(text[place]) ^ 1 << bit) + text[place + 1 :]
            try:
                assert parse_json(other) == content
            except ValueError:
                continue
    with pytest.raises(ValueError, match=r"damaged or was edited\. If you edited it, remove 'sum' from it"):
        parse_json(text.replace("2.5", "2.6"))
