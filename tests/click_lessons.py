#!/usr/bin/env python3
"""Plays the pages of `draftscope learn --export DIR` in Chromium, with clicks alone, as a reader would.

    python3 -m venv v && v/bin/pip install playwright
    v/bin/python tests/click_lessons.py DIR [--browser /usr/bin/chromium] [--pictures FOLDER]

Every question is answered wrongly first, every action is stepped to its goal, every slider task is solved, and every
recorded run is played. Fails if a page reports an error, asks the network for anything, or does not come to its end.
"""

import argparse
import pathlib
import sys

from playwright.sync_api import sync_playwright


def answer(section):
    """Takes a wrong choice, then all others until the answer is revealed."""
    choices = section.locator("button:not(.next)")
    right = None
    for place in range(choices.count()):
        choice = choices.nth(place)
        if choice.is_disabled():
            continue
        choice.click()
        if "right" in (choice.get_attribute("class") or ""):
            right = place
            break
    reveal = section.locator(".reveal")
    assert reveal.count() == 1, "the answer is revealed once"
    assert section.locator("button.right").count() == 1, f"one right choice, taken: {right}"
    wrong = section.locator("button.wrong").count()
    assert section.locator(".why").count() == wrong, "each wrong choice has its reply"
    return wrong


def step(section):
    """Steps to the goal, once back on the way; the number of steps."""
    image = section.locator("img.drawing")
    forward, back = section.get_by_role("button", name="step"), section.get_by_role("button", name="back")
    seen, count = {image.get_attribute("src")}, 0
    forward.click()
    back.click()
    while forward.is_enabled():
        forward.click()
        seen.add(image.get_attribute("src"))
        count += 1
    assert len(seen) == count + 1, f"{count} steps show {len(seen)} pictures"
    assert section.locator(".reveal").inner_text() == "Done."
    return count


def solve(section):
    """Moves the free sliders to what the last hint says."""
    hint = section.get_by_role("button", name="Hint")
    while hint.is_enabled():
        hint.click()
    text = section.locator(".hint").last.inner_text()
    names = {"acceptance a": 0, "drafts k": 1, "a further row": 2, "a draft d": 3}
    for part in text.split("For example: ")[1].rstrip(".").split(", "):
        name = next(name for name in names if part.startswith(name))
        value = part[len(name):].split()[0]
        slider = section.locator("input[type=range]").nth(names[name])
        slider.evaluate("(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value)
    assert section.locator(".reveal").count() == 1, section.inner_text()


def play(section):
    """Plays the recorded run in its frame for a moment, and opens a token."""
    section.locator("details.run > summary").click()
    frame = section.locator("iframe").content_frame
    frame.locator("#play").click()
    frame.locator("#play").click()
    frame.locator("#ladder .t").first.click()
    assert frame.locator("#card").is_visible(), "the card of a token opens"
    frame.locator("#card .close").click()


def play_page(page, path, pictures):
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url) if request.url.startswith("http") else None)
    page.goto(path.resolve().as_uri())
    sections = page.locator("#steps > section")
    total = sections.count()
    wrong = stepped = solved = played = 0
    for place in range(total):
        section = sections.nth(place)
        assert section.is_visible(), f"step {place + 1} of {total} is locked"
        assert place + 1 == total or not sections.nth(place + 1).is_visible(), f"step {place + 2} is open too early"
        for image in section.locator("img.drawing").all():
            assert image.evaluate("(i) => i.decode().then(() => i.naturalWidth)") > 300, "the drawing is drawn"
            assert len(image.get_attribute("alt")) > 20, "the drawing can be read"
        if section.locator("details.run").count():
            play(section)
            played += 1
        if section.locator("input[type=range]").count():
            solve(section)
            solved += 1
        elif section.locator(".stepper").count():
            stepped += step(section)
        elif section.locator("button:not(.next)").count():
            wrong += answer(section)
        if pictures:
            section.screenshot(path=str(pictures / f"{path.stem}-{place + 1}.png"))
        if place + 1 < total:
            onward = section.locator("button.next").filter(has_text="Next")
            onward.last.click()
    assert not errors, errors
    assert not asked, asked
    images = page.locator("img.drawing").count()
    print(f"{path.name}: {total} steps, {images} drawings, {wrong} wrong answers, {stepped} steps to goals, "
          f"{solved} tasks, {played} runs")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--pictures", type=pathlib.Path)
    args = parser.parse_args()
    pages = sorted(path for path in args.folder.glob("*.html") if path.name[0].isdigit())
    if not pages:
        sys.exit(f"{args.folder} has no pages of lessons: draftscope learn --export {args.folder}")
    if args.pictures:
        args.pictures.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        for path in pages:
            page = browser.new_page(viewport={"width": 1100, "height": 900})
            page.set_default_timeout(5000)
            play_page(page, path, args.pictures)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
