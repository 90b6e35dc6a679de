"""The report in a real browser: Chromium as the system has it, driven by Playwright."""

import os
import shutil

import pytest
from made_runs import CLASSES, make_comparison, make_record, make_training, write_records

pytest.importorskip("plotly", reason="the extra report is not installed")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.slow

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, NARROW = {"width": 1280, "height": 1000}, {"width": 390, "height": 844}
PANEL = "#features-0-0 .panel"
EPOCH = "#features-0-0 output.epoch"


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("there is no Chromium here; on Debian: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # as root, Chromium runs without its sandbox only; the page is ours
        arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        try:
            started = playwright.chromium.launch(executable_path=path, args=arguments)
        except sync_api.Error as error:
            pytest.skip(f"{path} does not start: {str(error).splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page with pictures, and one of a table's rows beside records alone."""
    from ldmnet.report import write_report

    folder = tmp_path_factory.mktemp("runs")
    make_comparison(folder / "<script>alert(2)</script>".replace("/", "\u2215"), ("none", "ldmnet"))
    write_report([next(folder.iterdir())], folder / "pictures.html")
    make_training(folder / "run", pictures=False, method="ldmnet")
    records = write_records(folder / "mnist.jsonl", make_record(), make_record("<b>mine</b> & <script>", seed=1))
    write_report([folder / "run", records], folder / "rows.html")
    return folder


@pytest.fixture
def opened(browser, report):
    """Opens a page; at the end nothing must have been complained about, asked for, or alerted."""
    contexts, complaints = [], []

    def opens(name="pictures.html", at="", viewport=WIDE, **options):
        context = browser.new_context(viewport=viewport, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda request: complaints.append(request.url) if request.url[:4] == "http" else None)
        page.goto((report / name).as_uri() + at)
        return page

    yield opens
    for context in contexts:
        context.close()
    assert complaints == []


def until(page, expression):
    """Wait for something to be true; the page's policy forbids `wait_for_function`."""
    for _ in range(1200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def places(page):
    """Where the points of every panel are drawn."""
    until(page, f"document.querySelectorAll('{PANEL} .scatterlayer .point').length == 72")
    return page.evaluate(
        f"""[...document.querySelectorAll('{PANEL}')].map(panel => [...panel.querySelectorAll(
        '.scatterlayer .point')].map(point => point.getAttribute('transform')))"""
    )


def scroll_through(page):
    """Every plot is drawn when it comes into view, and folded ones when they are opened."""
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    page.evaluate(
        """async () => {
            for (const place of document.querySelectorAll('.plot')) {
                place.scrollIntoView();
                await new Promise(done => setTimeout(done, 30));
            }
        }"""
    )
    until(page, "[...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")


@pytest.mark.parametrize("name", ["pictures.html", "rows.html"])
def test_a_phone_draws_every_plot_and_does_not_scroll_sideways(opened, name):
    page = opened(name, viewport=NARROW, has_touch=True, is_mobile=True)
    scroll_through(page)
    assert (
        page.evaluate("[...document.querySelectorAll('.plot')].filter(p => !p.querySelector('.trace, .hm')).length")
        == 0
    )
    assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    wide = "[...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth)"
    until(page, f"{wide}.length > 0")  # a wide table scrolls, and its first column stays
    assert page.evaluate(
        f"""() => {{
            const table = {wide}[0];
            table.scrollLeft = 50;
            const head = table.querySelector('tbody tr:last-child th:first-child');
            return [table.scrollLeft > 0, head.getBoundingClientRect().left - table.getBoundingClientRect().left];
        }}"""
    ) == [True, 0]


def test_the_slider_moves_the_points_by_keyboard(opened):
    page = opened(at="#features")
    last = places(page)
    slider = page.get_by_role("slider", name="Epoch", exact=True).first
    slider.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Home")
    assert page.locator(EPOCH).inner_text() == "0 of 24"
    assert page.evaluate("document.activeElement.ariaValueText") == "0 of 24"
    first = places(page)
    assert all(before != after for before, after in zip(last, first, strict=True))
    page.keyboard.press("ArrowRight")
    assert page.locator(EPOCH).inner_text() == "1 of 24"
    page.keyboard.press("End")
    assert places(page) == last


def test_points_glide_where_motion_is_welcome(browser, report):
    context = browser.new_context(viewport=WIDE, reduced_motion="no-preference")
    page = context.new_page()
    page.goto((report / "pictures.html").as_uri() + "#features")
    last = places(page)
    page.get_by_role("slider", name="Epoch", exact=True).first.focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(600)
    gone = places(page)
    assert all(before != after for before, after in zip(last, gone, strict=True))
    page.get_by_role("button", name="Play").first.click()
    until(page, f"document.querySelector('{EPOCH}').textContent == '1 of 24'")
    context.close()


def test_pointing_at_a_sample_shows_its_picture(opened):
    page = opened(at="#features")
    places(page)
    point = page.locator(f"{PANEL} >> nth=1 >> .scatterlayer .point").nth(23)
    point.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    box = point.bounding_box()
    page.mouse.move(box["x"] - 3, box["y"] - 3)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    sample = 23
    until(page, f"document.querySelector('#features-0-0 input.sample').value == {sample}")
    shown = page.evaluate(
        """() => {
            const style = getComputedStyle(document.querySelector('#features-0-0 .picture'));
            return [style.backgroundImage.slice(0, 27), style.backgroundPosition];
        }"""
    )
    assert shown[0] == 'url("data:image/png;base64,'
    assert shown[1] == f"{-64 * (sample % 20)}px {-64 * (sample // 20)}px".replace("-0px", "0px")
    said = page.locator("#features-0-0 output.sample")
    assert any(f"class {name}" in said.inner_text() for name in CLASSES)
    label = page.locator(f"{PANEL} >> nth=1 >> .hoverlayer")
    label.locator("text").first.wait_for()
    assert "taken for" in label.text_content()
    assert any(f"class {name}" in label.text_content() for name in CLASSES)
    before = said.inner_text()
    page.get_by_role("slider", name="Sample").focus()  # the same by keyboard
    page.keyboard.press("Home")
    assert said.inner_text() != before
    for panel in range(2):  # every method's panel marks it
        assert page.evaluate(f"document.querySelectorAll('.features .plot')[{panel}].data[0].selectedpoints") == [0]


def test_rows_of_a_table_have_names_and_no_pictures(opened):
    page = opened("rows.html", at="#features")
    assert "test sample <i>" in page.locator("#features-0-0 output.sample").inner_text()
    assert page.locator("#features-0-0 .picture").count() == 0


def test_a_class_named_script_stays_text(opened):
    page = opened(at="#features")
    for name in CLASSES:
        assert page.locator("#features-0-0 .legend li", has_text=name).count() == 1
    assert page.evaluate("document.querySelectorAll('script').length") == 3
    assert page.evaluate("document.querySelectorAll('main b, main i, main img').length") == 0
    page = opened("rows.html", at="#curves")
    assert page.locator("#loss-1 .legendtext", has_text="<b>mine</b> & <script>").count() == 1
    plot = page.locator("#loss-1 .plot")
    plot.scroll_into_view_if_needed()
    plot.locator(".main-svg").first.wait_for()
    box = plot.bounding_box()
    for shift in (0, 4):
        page.mouse.move(box["x"] + box["width"] / 2 + shift, box["y"] + box["height"] / 2)
        page.wait_for_timeout(100)
    label = plot.locator(".hoverlayer")
    label.locator("text").first.wait_for()
    assert "<b>mine</b> & <script>" in label.text_content()


def test_dark_mode_changes_the_page_and_its_plots(opened):
    page = opened(color_scheme="light")
    page.locator("#loss-0").scroll_into_view_if_needed()
    look = """() => [getComputedStyle(document.body).backgroundColor,
        document.querySelector('#loss-0 .xtick text').style.fill]"""
    page.locator("#loss-0 .xtick text").first.wait_for()
    light = page.evaluate(look)
    page.emulate_media(color_scheme="dark")
    until(page, f"({look})()[1] != {light[1]!r}")
    dark = page.evaluate(look)
    assert light == ["rgb(246, 246, 244)", "rgb(27, 31, 36)"]
    assert dark == ["rgb(16, 19, 23)", "rgb(232, 234, 237)"]


def test_paper_is_light_and_cuts_no_plot(opened):
    page = opened(color_scheme="dark", viewport={"width": 718, "height": 1000})
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    until(
        page, "[...document.querySelectorAll('main > section:not(#solver) .plot')].every(p => p.querySelector('svg'))"
    )
    found = page.evaluate(
        """() => [...document.querySelectorAll('main > section:not(#solver) figure')].map(figure => {
            const right = figure.getBoundingClientRect().right;
            const plots = [...figure.querySelectorAll('.plot .main-svg')];
            return [getComputedStyle(figure).breakInside,
                plots.every(svg => svg.getBoundingClientRect().right <= right),
                figure.getBoundingClientRect().height < 1000];
        })"""
    )
    assert found
    assert all(row == ["avoid", True, True] for row in found)
    assert page.evaluate("getComputedStyle(document.querySelector('#loss-0 .xtick text')).fill") == "rgb(27, 31, 36)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    until(page, "getComputedStyle(document.querySelector('#loss-0 .xtick text')).fill != 'rgb(27, 31, 36)'")
