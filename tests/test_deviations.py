import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_departure_in_the_code_has_its_entry_and_the_other_way_round():
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    marked = set(re.findall(r"# DEVIATION\((\d+)\)|, DEVIATION\((\d+)\)", code))
    numbers = {a or b for a, b in marked}
    entries = set(re.findall(r"^## (\d+)\. ", (ROOT / "docs" / "deviations.md").read_text(), re.MULTILINE))
    assert numbers == entries
    assert entries
