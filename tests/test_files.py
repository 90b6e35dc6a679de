"""Files: written whole or not at all, wherever they lead; read only if they are files, and of a size that fits."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ldmnet import files
from ldmnet.errors import DataError, StateError
from ldmnet.files import read_bounded, write_atomically, written_whole

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
