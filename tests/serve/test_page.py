"""The page at / in headless Chromium: someone types a prompt and sees a text. Screenshots go to $ALIBI_SCREENSHOTS."""

import os
import pathlib
import shutil

import pytest
from conftest import KEY, SENTENCE, serving

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason="there is no chromium with chromedriver here")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, server):
    browser.get(server.url)
    until(browser, lambda: text_of(browser, "name") not in ("…", ""))
    browser.get_log("browser")
    return browser


def until(browser, condition, seconds=30):
    WebDriverWait(browser, seconds, poll_frequency=0.1).until(lambda _: condition())


def text_of(browser, name):
    return browser.find_element(By.ID, name).text


def fill(browser, name, value):
    element = browser.find_element(By.ID, name)
    element.clear()
    element.send_keys(value)
    return element


def click(browser, name):
    element = browser.find_element(By.ID, name)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def generated(browser):
    return browser.execute_script("return document.querySelector('#text').lastChild?.textContent ?? ''")


def is_idle(browser):
    return browser.find_element(By.ID, "generate").is_enabled()


def test_a_prompt_gives_a_text(page, name):
    assert text_of(page, "name") == name and name in page.title
    fill(page, "temperature", "0")
    fill(page, "tokens", "40")
    prompt = fill(page, "prompt", SENTENCE[:15])
    prompt.send_keys(Keys.CONTROL, Keys.ENTER)
    until(page, lambda: is_idle(page) and generated(page))
    assert " jumps over" in generated(page) and text_of(page, "text").startswith(SENTENCE[:15])
    assert float(text_of(page, "rate").split("\n")[0]) > 0
    assert text_of(page, "counts").startswith("40\n") and text_of(page, "certificate").startswith("exact\n")
    assert not [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"]


def test_a_long_text_is_stopped(page):
    fill(page, "tokens", "100000")
    click(page, "generate")
    until(page, lambda: len(generated(page)) > 20)
    assert not is_idle(page)
    page.find_element(By.ID, "prompt").send_keys(Keys.ESCAPE)
    until(page, lambda: is_idle(page), 10)
    until(page, lambda: "0 of " in text_of(page, "server-facts"), 15)  # the slot is free again
    assert page.find_element(By.ID, "try-wrong").get_attribute("hidden")


def test_a_chat_is_answered(page):
    page.execute_script("document.querySelector('#mode').value = 'chat'")
    fill(page, "tokens", "12")
    click(page, "generate")
    until(page, lambda: is_idle(page) and generated(page))


def test_lengths_are_compared(page, model):
    alibi = pytest.importorskip("alibi_attention", reason="the Python package is not installed")
    core = alibi.LanguageModel.load(model)
    text = "".join(SENTENCE.format(i) for i in range(9))
    page.execute_script("document.querySelector('#long').value = arguments[0]", text)
    click(page, "measure")
    until(page, lambda: page.find_element(By.ID, "lengths").is_displayed() and page.find_element(By.ID, "measure").is_enabled(), 60)
    rows = [row.text.split() for row in page.find_elements(By.CSS_SELECTOR, "#lengths tbody tr")]
    assert len(rows) >= 4 and sum("(trained)" in row for row in rows) == 1
    ids = core.encode(text)
    for row in rows:
        seen = int(row[0].replace(",", ""))
        sums, _ = core.loglikelihoods([ids[-(seen + 64) :]], [64])
        assert abs(float(row[-2]) + sums[0] / 64) <= 1.5e-3, row
    fill(page, "long", "short")
    click(page, "measure")
    until(page, lambda: "expected at least" in text_of(page, "compare-wrong"))


def test_what_is_wrong_is_told(page):
    fill(page, "temperature", "-1")
    click(page, "generate")
    until(page, lambda: "temperature" in text_of(page, "try-wrong"))
    assert is_idle(page)


def test_a_key_is_asked_for(browser, model):
    for server in serving(model, key=KEY):
        browser.get(server.url)
        until(browser, lambda: "key" in text_of(browser, "server-wrong"))
        fill(browser, "key", KEY + Keys.TAB)
        until(browser, lambda: text_of(browser, "name") == model.name)


def test_everything_is_reached_by_keyboard(page):
    page.execute_script("document.querySelector('header').tabIndex = -1; document.querySelector('header').focus()")
    reached = []
    for _ in range(20):
        page.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(page.switch_to.active_element.get_attribute("id"))
    expected = ["prompt", "mode", "tokens", "temperature", "top-p", "seed", "generate", "text", "long", "measure", "take"]
    assert [name for name in reached if name in expected][: len(expected)] == expected, reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1000, 400])
def test_it_fits_the_screen(browser, server, width, scheme, tmp_path):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})  # fmt: skip
    browser.get(server.url)
    until(browser, lambda: text_of(browser, "name") not in ("…", ""))
    fill(browser, "prompt", SENTENCE[:15])
    fill(browser, "tokens", "120")
    click(browser, "generate")
    until(browser, lambda: is_idle(browser) and generated(browser))
    browser.execute_script("document.querySelector('#long').value = arguments[0]", "".join(SENTENCE.format(i) for i in range(9)))
    click(browser, "measure")
    until(browser, lambda: browser.find_element(By.ID, "lengths").is_displayed() and browser.find_element(By.ID, "measure").is_enabled(), 60)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width, "it is wider than the screen"
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in ground[4:-1].split(",")) > 384) == (scheme == "light"), ground
    # What a finger has to hit.
    assert all(button.size["height"] >= 44 for button in browser.find_elements(By.TAG_NAME, "button"))
    height = browser.execute_script("return document.documentElement.scrollHeight")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})  # fmt: skip
    shots = pathlib.Path(os.environ.get("ALIBI_SCREENSHOTS", tmp_path))
    shots.mkdir(parents=True, exist_ok=True)
    assert browser.save_screenshot(str(shots / f"page-{width}-{scheme}.png"))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
