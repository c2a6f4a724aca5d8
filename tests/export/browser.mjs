// The page and the cast in a real browser: no console error, plays, a token's card opens, by pointer
// and by keyboard, at a phone's and a desk's width.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { chromium } from "playwright-core";

const work = process.argv[2];
const shots = process.env.SHOTS;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

async function open(url, width, colorScheme) {
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
  const problems = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) problems.push(message.text()); });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => { if (!request.url().startsWith(url.split("#")[0]) && !request.url().startsWith("data:")) problems.push("loads " + request.url()); });
  await page.goto(url);
  return { page, problems };
}

for (const [width, scheme] of [[380, "light"], [1400, "dark"]]) {
  const { page, problems } = await open("file://" + join(work, "out.html"), width, scheme);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(overflow <= 0, `${width}: ${overflow} px wider than the screen`);
  const rounds = await page.locator(".rung").count();
  assert.ok(rounds > 10, "rounds are listed");
  const rejected = page.locator("#transcript .rejected").first();
  await rejected.click();
  const card = page.locator("#card");
  assert.ok(await card.isVisible(), "the card opens");
  const text = await card.innerText();
  for (const word of ["p 0.", "q 0.", "rejected", "all others", "target (p)", "drafter (q)"]) assert.ok(text.includes(word), `the card says ${word}: ${text}`);
  if (shots) await page.screenshot({ path: join(shots, `page-${width}.png`) });
  await page.keyboard.press("Escape");
  assert.ok(!(await card.isVisible()), "Escape closes it");
  await page.locator("#transcript .recovered").first().focus();
  await page.keyboard.press("Enter");
  assert.ok((await card.innerText()).includes("round "), "Enter opens it");
  const before = await page.locator("#card-title").innerText();
  await page.keyboard.press("ArrowRight");
  assert.notEqual(await page.locator("#card-title").innerText(), before, "arrows go on");
  await page.keyboard.press("Escape");
  await page.selectOption("#speed", "4");
  await page.click("#play");
  await page.waitForFunction(() => Number(document.getElementById("scrub").value) > 3, null, { timeout: 20000 });
  const hidden = await page.locator("#transcript .later").count();
  assert.ok(hidden > 0, "what has not happened yet is hidden");
  await page.click("#play");
  const stopped = await page.inputValue("#scrub");
  await page.waitForTimeout(500);
  assert.equal(await page.inputValue("#scrub"), stopped, "pause holds");
  await page.locator("#scrub").focus();
  await page.keyboard.press("Home");
  assert.equal(await page.inputValue("#scrub"), "0");
  await page.keyboard.press("End");
  assert.equal(await page.locator("#transcript .later").count(), 0);
  await page.uncheck("#discarded");
  assert.ok(!(await rejected.isVisible()), "discarded drafts can be hidden");
  await page.emulateMedia({ media: "print" });
  assert.ok(!(await page.locator("#player").isVisible()) && (await page.locator("#transcript").isVisible()), "prints without controls");
  const names = await page.evaluate(() => [...document.querySelectorAll("button,input,select,[role=button]")].filter((e) => !(e.ariaLabel || e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length)).length);
  assert.equal(names, 0, "every control has a name");
  assert.deepEqual(problems, [], `${width}: console`);
  await page.close();
  console.log(`page at ${width} px, ${scheme}: plays, cards open, no console message`);
}

// asciinema-player reads a cast over HTTP
const player = join(work, "node_modules/asciinema-player/dist/bundle");
const files = {
  "/": ["text/html", `<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" href="/p.css"><div id="d"></div><script src="/p.js"></script><script>
    window.marks = 0; window.ended = false;
    window.player = AsciinemaPlayer.create("/out.cast", document.getElementById("d"), { autoPlay: true, speed: 16, preload: true });
    player.addEventListener("marker", () => { window.marks += 1; });
    player.addEventListener("ended", () => { window.ended = true; });
  </script>`],
  "/p.js": ["text/javascript", readFileSync(join(player, "asciinema-player.min.js"))],
  "/p.css": ["text/css", readFileSync(join(player, "asciinema-player.css"))],
  "/out.cast": ["application/octet-stream", readFileSync(join(work, "out.cast"))],
};
const server = createServer((request, response) => {
  const found = files[request.url];
  response.writeHead(found ? 200 : 404, { "content-type": found?.[0] ?? "text/plain" });
  response.end(found?.[1]);
}).listen(0, "127.0.0.1");
await new Promise((done) => server.once("listening", done));
{
  const { page, problems } = await open(`http://127.0.0.1:${server.address().port}/`, 1400, "dark");
  await page.waitForFunction(() => window.ended, null, { timeout: 60000 });
  const text = await page.locator(".ap-term").innerText().catch(() => page.locator("#d").innerText());
  const marks = await page.evaluate(() => window.marks);
  if (shots) await page.screenshot({ path: join(shots, "cast.png") });
  assert.ok(marks > 5, `${marks} markers passed`);
  assert.deepEqual(problems, [], "player console");
  console.log(`cast: asciinema-player plays it to its end, ${marks} markers; ${text.length} characters on screen`);
}
server.close();
await browser.close();
writeFileSync(join(work, "browser.ok"), "");
