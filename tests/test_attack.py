"""A sample of every attack; `make attack` runs them at length."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the attacks fork processes")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cases"), [("fuzz", 2000), ("numbers", 400), ("damage", 400), ("kills", 4), ("disk", 4)]
)
def test_no_attack_of_a_sample_succeeds(name, cases):
    pytest.importorskip("PIL.Image")
    from attack.__main__ import attack

    found = attack(name, 1, 0, cases, float("inf"))
    assert found["failures"] == []
    assert found["cases"] == sum(found["counts"].values()) == cases


def test_a_case_is_drawn_from_its_number_alone():
    from attack.cases import draw_of

    assert draw_of(0, "fuzz", 7).random() == draw_of(0, "fuzz", 7).random() != draw_of(0, "fuzz", 8).random()


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 11)", "os._exit(3)", "bytearray(2**33)", "1 / 0"])
def test_what_ends_a_process_is_one_failed_case_and_the_others_are_made(end):
    from attack.cases import in_batches

    def case(number):
        if number == 3:
            exec(end, {"os": os})
        return "a reader", "right", ""

    found = list(in_batches(case, 0, 6))
    assert sorted(outcome.case for outcome in found) == list(range(6))
    assert [outcome.case for outcome in found if outcome.end != "right"] == [3]
