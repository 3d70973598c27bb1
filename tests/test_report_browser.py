"""The report in a real browser: it opens, its controls work, and it fits a phone."""

import io
import os
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from sweeps import TASK, configured, measured, write_run, write_sweep

from fedsum.report import read_runs, write_page
from fedsum.report.panels import mean_curve

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Debian's chromium and chromium-driver"),
    # One browser and one sweep are enough for the file.
    pytest.mark.xdist_group("browser"),
]
NONE = "\N{EN DASH}"
OPTIONS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser") / "sweep"
    write_sweep(folder, algorithms=("FedSUM", "FedAvg", "SCAFFOLD"), rounds=28)
    return folder


def test_who_is_served(tmp_path, browser):
    for algorithm in ("FedSUM", "FedAvg"):
        config = configured(algorithm, "Uniform")
        write_run(tmp_path / "sweep" / algorithm, config, measured(config))
        rows = [f"{i},{2 + i},{0.5 + i / 100},{0.9 - i / 100}" for i in range(20)]
        (tmp_path / "sweep" / algorithm / "clients.csv").write_text("\n".join(["client,rounds,loss,accuracy", *rows]))
    browser.get(write_page(tmp_path / "sweep", tmp_path / "served.html").as_uri())
    dots = "return document.querySelectorAll('#served circle.dot').length"
    assert browser.execute_script(dots) == 40
    title = browser.execute_script("return document.querySelector('#served circle.dot title').textContent")
    assert title == "FedSUM, client 0: 90.00%, active in 5% of the rounds"
    browser.get(browser.current_url + "#no-algorithm=FedAvg")
    browser.refresh()
    assert browser.execute_script(dots) == 20
    write_run(tmp_path / "plain" / "run", configured(), measured(configured()))
    browser.get(write_page(tmp_path / "plain", tmp_path / "plain.html").as_uri())
    assert browser.execute_script("return document.getElementById('served').hidden")
    assert not browser.get_log("browser")


@pytest.fixture(scope="module")
def address(sweep):
    return write_page(sweep, sweep.parent / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in OPTIONS:
        options.add_argument(option)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # as root, the browser refuses to start with a sandbox
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, address):
    """Opens the page at a width, with a view. Any message on the browser's console fails the test."""

    def open_(width=1280, height=900, view="", dark=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        # With smooth scrolling, elements move between the choice of a click's position and the click.
        wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get("about:blank")
        browser.get(address + view)
        return browser

    yield open_
    assert browser.get_log("browser") == []


def find(browser, css):
    return browser.find_elements("css selector", css)


def one(browser, css):
    return browser.find_element("css selector", css)


def curves(browser):
    return sorted({curve.get_attribute("data-value") for curve in find(browser, "#panels .curve")})


def choose(browser, control, value):
    one(browser, f"#pick-{control} option[value='{value}']").click()


def rows(browser, table):
    """The cells of a table, read in one call, because one call per cell would take seconds."""
    script = (
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    )
    return browser.execute_script(script, table)


def switch(browser, label):
    next(box for box in find(browser, "label.choice") if box.text == label).click()


def test_opens_with_everything_on_it(opened):
    browser = opened()
    assert one(browser, "h1").text == "sweep"
    summary = one(browser, "#summary").text
    assert summary.startswith("17 runs (15 finished, 1 diverged, 1 stopped; some missing): 3 algorithms, 3 patterns")
    assert len(find(browser, "#panels svg.chart")) == 3
    assert [head.text for head in find(browser, "#panels figcaption")] == ["Uniform (P1)", "Independent (P2)", "Biased"]
    assert len(find(browser, "#panels .curve")) == 9
    assert len(find(browser, "#panels .cross")) == 1
    assert len(find(browser, "#rasters image")) == 3
    assert len(find(browser, "#bars svg path")) == 10
    assert [line.text for line in find(browser, "#unfinished li")] == [
        "diverged digits · Uniform (P1) · SCAFFOLD · seed 1: round 13 of 28; train loss is inf <i>in</i> round 13",
        "stopped digits · Independent (P2) · SCAFFOLD · seed 1: round 25 of 28; interrupted",
    ]
    assert one(browser, "#missing li").text == "digits · Biased · SCAFFOLD: seed 1"


def test_switches_take_curves_and_rows_away_and_back(opened):
    browser = opened()
    assert curves(browser) == ["FedAvg", "FedSUM", "SCAFFOLD"]
    switch(browser, "FedAvg")
    assert curves(browser) == ["FedSUM", "SCAFFOLD"]
    assert {row[0] for row in rows(browser, "#final-table")} == {"FedSUM", "SCAFFOLD"}
    switch(browser, "Biased")
    assert len(find(browser, "#panels svg.chart")) == len(find(browser, "#rasters svg")) == 2
    one(browser, "#switch-algorithm button[aria-label='Algorithms: none']").click()
    assert "switched off" in one(browser, "#panels").text
    one(browser, "#reset").click()
    assert len(find(browser, "#panels .curve")) == 9


def test_axes_metric_scale_and_zoom(opened):
    browser = opened()
    labels = {
        "round": "round",
        "communication": "vectors sent",
        "bytes": "bytes sent",
        "seconds": "seconds of training",
    }
    for x, label in labels.items():
        choose(browser, "x", x)
        assert {text.text for text in find(browser, "#panels .x-label")} == {label}
    choose(browser, "x", "round")

    def ticks():
        script = "return [...document.querySelector('#panels svg.chart').querySelectorAll('text[text-anchor=end]')]"
        return browser.execute_script(script + ".map(t => t.textContent)")

    assert all(tick.endswith("%") for tick in ticks())
    choose(browser, "y", "train_loss")
    logarithmic = ticks()
    assert not any(tick.endswith("%") for tick in logarithmic)
    shape = one(browser, "#panels .curve").get_attribute("d")
    choose(browser, "scale", "linear")
    assert one(browser, "#panels .curve").get_attribute("d") != shape
    points = one(browser, "#panels .curve[data-value=FedSUM]").get_attribute("d").count("L")
    choose(browser, "last", "10")
    assert one(browser, "#panels .curve[data-value=FedSUM]").get_attribute("d").count("L") == 9 < points


def test_what_is_compared_can_be_changed(opened):
    browser = opened()
    choose(browser, "compare", "schedule")
    assert curves(browser) == ["Biased", "Independent (P2)", "Uniform (P1)"]
    assert [head.text for head in find(browser, "#panels figcaption")] == ["FedSUM", "SCAFFOLD", "FedAvg"]
    assert len(find(browser, "#switch-schedule svg line")) == 3
    assert find(browser, "#switch-algorithm svg") == []


def test_algorithms_with_one_model_have_a_curve_for_the_server_model_too(opened, browser, tmp_path):
    for algorithm in ("FedSUM", "FedAWE"):
        config = configured(algorithm)
        extra = {"server_test_accuracy": 0.5} if algorithm == "FedAWE" else {}
        write_run(tmp_path / algorithm, config, measured(config).assign(**extra))
    opened()
    browser.get(write_page(tmp_path, tmp_path / "report.html").as_uri() + "#y=server_test_accuracy")
    assert curves(browser) == ["FedAWE", "FedSUM"]


def test_values_can_be_read_with_keys_and_pointer(opened, sweep):
    from selenium.webdriver.common.action_chains import ActionChains

    browser = opened()
    runs = [run for run in read_runs(sweep) if run.folder.name.startswith("FedSUM-Uniform")]
    end = mean_curve(runs, "round", "test_accuracy").iloc[-1]
    chart = one(browser, "#panels svg.chart")
    chart.send_keys("\ue010")  # the End key
    tip = one(browser, "#tip").text
    assert tip.startswith("round 28")
    told = f"{end['mean']:.2%}\n{end['low']:.2%} to {end['high']:.2%}"
    assert f"FedSUM\n{told}" in tip
    assert "(1 of 2 runs)" in tip  # SCAFFOLD's other one diverged
    chart.send_keys("\ue012")  # left
    assert one(browser, "#tip").text.startswith("round 27")
    chart.send_keys("\ue00c")  # escape
    assert not one(browser, "#tip").is_displayed()
    bars = one(browser, "#bars svg.chart")
    # Values vanish when the page scrolls, so wait until scrolling has ended.
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", bars)
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    ActionChains(browser).move_to_element(bars).perform()
    assert re.match("client (9|10), ", one(browser, "#tip").text)


def test_tables_sort(opened):
    browser = opened()
    head = one(browser, "#final-table th[data-key=test_accuracy]")
    column = [each.get_attribute("data-key") for each in find(browser, "#final-table th")].index("test_accuracy")
    for way, reverse in (("descending", True), ("ascending", False)):
        head.find_element("css selector", "button").click()
        assert head.get_attribute("aria-sort") == way
        seen = [float(row[column].split("%")[0]) for row in rows(browser, "#final-table")]
        assert seen == sorted(seen, reverse=reverse)
        assert len(set(seen)) > 3


def test_a_target_is_reached_sooner_if_it_is_lower(opened):
    browser = opened()

    def reached(target):
        field = one(browser, "#target-0")
        field.clear()
        field.send_keys(target)
        return {(row[0], row[1]): row[2:4] for row in rows(browser, "#target-table")}

    low, high, never = reached("30"), reached("60"), reached("100")
    key = ("FedSUM", "Uniform (P1)")
    assert low[key][0] == high[key][0] == "2 of 2"
    assert float(low[key][1]) < float(high[key][1])
    assert set(map(tuple, never.values())) == {("0 of 2", NONE), ("0 of 1", NONE)}
    assert "target.test_accuracy.digits=1" in browser.current_url


def test_simulated_time_is_an_axis_and_a_cost(tmp_path, browser):
    for algorithm in ("FedSUM", "FedAvg"):
        config = configured(algorithm, "Uniform")
        metrics = measured(config)
        metrics = metrics.assign(time=1.5 * metrics["round"], late=metrics["round"])
        write_run(tmp_path / "sweep" / algorithm, config, metrics)
    browser.get(write_page(tmp_path / "sweep", tmp_path / "time.html").as_uri() + "#x=time")
    assert {text.text for text in find(browser, "#panels .x-label")} == {"simulated seconds"}
    script = "return [...document.querySelectorAll('#target-table thead th')].map(h => h.textContent.trim())"
    heads = browser.execute_script(script)
    time, rounds = heads.index("simulated seconds"), heads.index("rounds")
    reached = [(float(row[time]), float(row[rounds])) for row in rows(browser, "#target-table") if row[rounds] != NONE]
    assert reached
    assert all(seconds == 1.5 * done for seconds, done in reached)
    options = [option.get_attribute("value") for option in find(browser, "#pick-y option")]
    assert not {"time", "late"} & set(options)
    assert not browser.get_log("browser")


def test_the_address_holds_the_view(opened):
    browser = opened()
    switch(browser, "Independent (P2)")
    choose(browser, "x", "bytes")
    choose(browser, "y", "train_loss")
    assert "x=bytes&y=train_loss" in browser.current_url
    find(browser, "#final-table th button")[0].click()
    shared = browser.current_url.partition("#")[2]
    browser = opened(view="#" + shared)
    assert one(browser, "#pick-x").get_attribute("value") == "bytes"
    assert {text.text for text in find(browser, "#panels .x-label")} == {"bytes sent"}
    assert [head.text for head in find(browser, "#panels figcaption")] == ["Uniform (P1)", "Biased"]
    assert one(browser, "#final-table th[aria-sort]").get_attribute("data-key") == "algorithm"
    browser = opened(view="#x=nonsense&last=-3&no-algorithm=nobody&target.a=b&y=%3Cb%3E")
    assert len(find(browser, "#panels .curve")) == 9


def test_tasks_of_one_pattern_stand_beside_each_other(opened, browser, tmp_path):
    asked = (("mnist", "Uniform", "FedSUM"), ("digits", "Uniform", "FedSUM"), ("digits", "Biased", "FedAvg"))
    for name, schedule, algorithm in asked:
        config = configured(algorithm, schedule, task=TASK | {"name": name})
        write_run(tmp_path / schedule / name, config, measured(config))
    opened()
    browser.get(write_page(tmp_path / "Uniform", tmp_path / "one.html").as_uri())
    assert find(browser, "#panels h3") == []
    first, second = find(browser, "#panels figure")
    assert [figure.find_element("css selector", "figcaption").text for figure in (first, second)] == ["MNIST", "digits"]
    assert first.rect["y"] == second.rect["y"]
    assert first.rect["x"] < second.rect["x"]
    browser.get(write_page(tmp_path, tmp_path / "both.html").as_uri())
    assert [head.text for head in find(browser, "#panels h3")] == ["MNIST", "digits"]


def test_configuration_and_command_are_there_as_text(opened):
    from selenium.webdriver.support.ui import WebDriverWait

    browser = opened()
    details = one(browser, "details.run")
    details.find_element("css selector", "summary").click()
    # The text is made on the browser's toggle event, which comes a little later.
    command, config = WebDriverWait(browser, 10).until(lambda _: find(details, "pre"))
    assert command.text == "fedsum sweep a.toml && echo '<b>done</b>'"
    assert "local_steps = 5" in config.text


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900), (1920, 1080)])
def test_nothing_is_wider_than_the_window(opened, width, height, dark):
    browser = opened(width, height, dark=dark)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    sides = browser.execute_script("return document.getElementById('controls').getBoundingClientRect().width")
    assert sides > 300 if width < 800 else sides < 300
    charts = browser.execute_script(
        "return [...document.querySelectorAll('svg.chart')].map(c => c.getBoundingClientRect().right)"
    )
    assert max(charts) <= width


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (900, 900)])
def test_a_table_shows_that_it_scrolls_sideways(opened, width, height, dark):
    browser = opened(width, height, dark=dark)
    table = one(browser, "#final .scroll")
    cell = "return document.querySelector('#final td').getBoundingClientRect().x"

    def edge():
        """The pixel below the headings that is beside the scrollbar of a desktop."""
        browser.execute_script("arguments[0].scrollIntoView()", table)
        image = Image.open(io.BytesIO(table.screenshot_as_png)).convert("RGB")
        head = browser.execute_script("return document.querySelector('#final thead').offsetHeight")
        return image.getpixel((image.width - 18, head + 4))

    x, shaded = browser.execute_script(cell), edge()
    browser.execute_script("arguments[0].scrollLeft = arguments[0].scrollWidth", table)
    ground = edge()
    assert browser.execute_script("return arguments[0].scrollLeft", table) > 50
    assert browser.execute_script(cell) == x  # the algorithms stay in sight
    assert ground == ((0x14, 0x17, 0x1B) if dark else (255, 255, 255))
    assert sum(abs(one - other) for one, other in zip(shaded, ground, strict=True)) > 60


def test_controls_are_folded_on_a_phone_and_reachable_by_keyboard(opened):
    browser = opened(390, 844)
    assert not one(browser, "#pick-x").is_displayed()
    assert one(browser, "#legend").is_displayed()
    one(browser, "#fold summary").send_keys("\ue007")  # enter
    assert one(browser, "#pick-x").is_displayed()
    unlabelled = "return [...document.querySelectorAll('input, select')].filter(f => !f.labels.length).length"
    assert browser.execute_script(unlabelled) == 0
    one(browser, "#on-algorithm-0").send_keys(" ")
    assert "FedSUM" not in curves(browser)


def test_a_packed_file_opens(browser, tmp_path):
    packed = Path(__file__).parent.parent / "docs/results/bias.parquet"
    browser.get(write_page(packed, tmp_path / "report.html").as_uri())
    assert browser.title.startswith("bias")
    text = browser.find_element("tag name", "body").text
    assert "FedSUM" in text
    assert "SVHN" in text
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
