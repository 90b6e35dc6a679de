"""The site of docs: it builds without a warning, fetches nothing, and is searched from the disk."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
FETCHED = re.compile(r"""(?:<script[^>]+src|<link[^>]+stylesheet[^>]+href|<img[^>]+src)=["']?(https?:[^"'> ]+)""")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")
    pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr  # a warning is an error: a broken link, a missing page
    return folder


def test_the_pages_are_there_and_fetch_nothing(site):
    pages = list(site.rglob("*.html"))
    assert {"index.html", "start.html", "theory.html", "commands.html", "01_plain_loop.html"} <= {p.name for p in pages}
    for page in pages:
        assert FETCHED.findall(page.read_text()) == [], page.name


def test_formulas_are_mathml(site):
    theory = (site / "theory.html").read_text()
    assert theory.count("<math") > 20
    assert "$" not in re.sub(r"<(script|style|code|pre)\b.*?</\1>", "", theory, flags=re.S)


def test_the_reference_has_every_public_name(site):
    import ldmnet

    shown = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    missing = [name for name in ldmnet.__all__ if not re.search(rf'id="ldmnet\.[\w.]*\b{name}"', shown)]
    assert missing == []


def test_the_search_works_from_the_disk(site):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("there is no Chromium here; on Debian: apt-get install chromium")
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=arguments)
        except sync_api.Error as error:
            pytest.skip(f"{path} does not start: {str(error).splitlines()[0]}")
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "guide" / "loop.html").as_uri())
        page.locator(".md-search__input").click()
        page.get_by_text("Type to start searching").wait_for(timeout=20_000)  # the index is read
        page.keyboard.type("penalty")
        page.locator(".md-search-result__item h1").first.wait_for(timeout=20_000)
        assert "matching documents" in page.locator(".md-search-result__meta").inner_text()
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "blob:", "about:"))] == []
