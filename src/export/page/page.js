(() => {
  const picture = (tag, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const number = (value, digits) => (typeof value === "number" ? value.toFixed(digits) : "–");
  const largest = (values) => values.reduce((most, value) => Math.max(most, value), 0);
  const percent = (value) => (typeof value === "number" ? (value * 100).toFixed(1) + " %" : "–");

  // every round in order, and when it ended, in µs of measured time
  const rounds = [];
  let base = 0;
  for (const turn of data.turns) {
    let last = 0;
    for (const round of turn.rounds) {
      last = Math.max(last, round.clock_us);
      rounds.push({ round, turn, end: base + last });
    }
    base += last;
  }
  const index = new Map(rounds.map((entry, i) => [entry.round.round, i]));
  let shown = rounds.length;
  let timer = null;
  const tokens = [];

  const header = data.header || { model: {}, settings: { sampling: {} } };
  const settings = header.settings;
  at("about").textContent = [
    header.model.name,
    header.drafter ? "drafter " + header.drafter.name : "no drafter",
    header.engine ? null : "k = " + (settings.draft_len_mode === "auto" ? "auto" : settings.draft_len),
    data.reports_rule === false ? "k and rule set by the server" : "rule " + (settings.rule && settings.rule.name ? settings.rule.name : typeof settings.rule === "object" ? JSON.stringify(settings.rule) : settings.rule) + (header.lossless === false ? " (not lossless)" : " (lossless)"),
    "temperature " + settings.sampling.temperature + (settings.sampling.temperature > 0 ? ", seed " + settings.sampling.seed : ""),
    data.changed ? "other settings: " + data.changed : null,
    header.device + ", " + header.dtype,
    header.program,
  ].filter(Boolean).join(" · ");
  const began = new Date(header.started_unix_ms);
  if (header.started_unix_ms && Number.isFinite(began.getTime())) at("about").append(" · " + began.toISOString().slice(0, 10));
  const keys = [
    [data.speedup ? data.speedup.text : null, "as fast as plain decoding" + (data.speedup && data.speedup.disturbed ? " (disturbed)" : "")],
    [number(data.summary.tokens_per_round, 2), "tokens per pass of the target"],
    [percent(data.summary.draft_acceptance_rate), "of the drafts accepted"],
    [number(data.summary.tokens_per_second, 0), "tokens per second"],
  ];
  for (const [value, what] of keys) {
    if (!value || value === "–") continue;
    const item = make("li");
    item.append(make("b", value), make("span", what));
    at("key").append(item);
  }
  const warnings = [data.cut, data.left_out].filter(Boolean);
  if (warnings.length) {
    at("warning").hidden = false;
    at("warning").textContent = warnings.join("; ");
  }

  // the transcript; DEPARTED marks accepted drafts that the target would not have picked, FORCED those that a grammar forced
  const DEPARTED = "accepted departed";
  const FORCED = "accepted forced";
  const SAID = { [DEPARTED]: "accepted, not the target's choice", [FORCED]: "accepted, forced by the grammar", refused: "refused by the grammar" };
  const pressable = (element, name, round, column, turn) => {
    element.tabIndex = 0;
    element.setAttribute("role", "button");
    const entry = { element, name, round, column, turn };
    tokens.push(entry);
    element.addEventListener("click", () => open(entry));
    element.addEventListener("mouseenter", () => { if (!pinned && !quiet) show(entry); });
    element.addEventListener("mouseleave", () => { if (!pinned) close(); });
    element.addEventListener("keydown", (event) => key(event, entry));
    return element;
  };
  for (const turn of data.turns) {
    at("transcript").append(make("div", turn.typed, "typed"));
    const answer = make("div", null, "answer");
    for (const [text, fate, round, column] of turn.transcript) {
      // the mark of a fate comes right before its word, after the space
      const word = text.replace(/^ +/, "");
      const name = fate.endsWith(" end") ? "end of the answer" : text.trim() || "blank";
      const element = make("span", text.slice(0, text.length - word.length), "t " + fate);
      element.append(make("span", word, "w"));
      element.setAttribute("aria-label", name + ", " + (SAID[fate] || fate.replace("_", " ")));
      element.dataset.at = index.has(round) ? index.get(round) : -1;
      if (round === 0) element.dataset.at = index.size && turn.rounds.length ? index.get(turn.rounds[0].round) - 0.5 : -1;
      answer.append(pressable(element, name, round, column, turn));
    }
    at("transcript").append(answer);
  }
  const transcriptTokens = tokens.length;
  for (const [id, fate] of [["departed", DEPARTED], ["forced", FORCED], ["refused", "refused"]]) {
    at(id).hidden = !data.turns.some((turn) => turn.transcript.some((token) => token[1] === fate));
  }

  // notes and bookmarks
  const noted = new Map();
  for (const mark of data.marks) {
    const words = (mark.bookmark ? "★ " : "✎ ") + mark.text;
    if (!noted.has(mark.round)) noted.set(mark.round, []);
    noted.get(mark.round).push(words);
    const item = make("li");
    if (index.has(mark.round)) {
      const go = make("button", "round " + mark.round);
      go.type = "button";
      go.addEventListener("click", () => {
        stop();
        place(index.get(mark.round) + 1);
        reveal(rungs[index.get(mark.round)]);
      });
      item.append(go);
    } else if (mark.place) {
      item.append(mark.place + ": ");
    }
    item.append(words);
    at("marks").append(item);
  }
  at("marked").hidden = !data.marks.length;

  // rounds ladder
  for (const { round, turn } of rounds) {
    const rung = make("div", null, "rung");
    rung.dataset.round = round.round;
    rung.append(make("b", "round " + round.round), make("span", round.accepted + "/" + round.drafts.length + " ✓", "of"));
    const refuse = (of) => {
      for (const { column, text } of round.refused.filter(of)) {
        rung.append(pressable(make("span", "⊘" + text, "t refused"), "⊘" + text, round.round, column, turn));
      }
    };
    round.drafts.forEach((draft, column) => {
      refuse((refused) => refused.column === column);
      const isForced = draft.forced && draft.outcome === "accepted";
      const sign = isForced ? "§" : { accepted: "", rejected: "✗", not_reached: "○", pending: "…" }[draft.outcome];
      const cell = make("span", sign + draft.text, "t " + (isForced ? FORCED : draft.outcome));
      if (typeof draft.q === "number") cell.append(make("small", "q " + number(draft.q, 2) + " p " + number(draft.p, 2)));
      rung.append(pressable(cell, sign + draft.text, round.round, column, turn));
    });
    refuse((refused) => refused.column >= round.drafts.length);
    if (round.next !== null) {
      const kind = round.drafts.length ? round.next_kind : "plain";
      const sign = { bonus: "✚", recovered: "↻", plain: "" }[kind];
      rung.append(pressable(make("span", sign + round.next, "t " + kind), sign + round.next, round.round, round.next_column, turn));
      tokens[tokens.length - 1].isNext = true;
    }
    rung.append(make("span", (round.verify_us / 1000).toFixed(1) + " ms", "took"));
    for (const words of noted.get(round.round) || []) rung.append(make("div", words, "note"));
    at("ladder").append(rung);
  }
  const rungs = [...at("ladder").children];
  const marked = [...document.querySelectorAll("[data-at]")].map((element) => [element, Number(element.dataset.at)]);

  // the card; after closing it, only a moved pointer opens a preview, not the token that lay under the card
  let pinned = false;
  let quiet = false;
  document.addEventListener("mousemove", (event) => { if (event.movementX || event.movementY) quiet = false; });
  let current = null;
  const bars = (card, title, row, chosen) => {
    if (!row || !row.top.length) return;
    const table = make("table");
    const caption = make("caption", title);
    table.append(caption);
    for (const [text, prob, id] of row.top) {
      const line = make("tr");
      line.append(make("td", (id === chosen ? "▸ " : "") + text));
      line.append(make("td", number(prob, 4)));
      const cell = make("td");
      const bar = make("progress");
      bar.max = 1;
      bar.value = prob;
      bar.setAttribute("aria-hidden", "true");
      cell.append(bar);
      line.append(cell);
      table.append(line);
    }
    const rest = make("tr");
    rest.append(make("td", "all others"), make("td", number(row.tail, 4)), make("td"));
    table.append(rest);
    card.append(table);
  };
  const show = (entry) => {
    const card = at("card");
    card.replaceChildren();
    if (current) current.element.classList.remove("on");
    current = entry;
    entry.element.classList.add("on");
    const shut = make("button", "×", "close");
    shut.type = "button";
    shut.setAttribute("aria-label", "Close the card");
    shut.addEventListener("click", () => { const back = current; close(); if (back) back.element.focus(); });
    const title = make("h3", entry.name);
    title.id = "card-title";
    card.append(shut, title);
    const found = index.get(entry.round);
    if (found === undefined) {
      const isKept = entry.element.matches(".kept");
      card.append(make("p", isKept ? "Kept from the answer that this one branches from." : "The first token of the answer, picked from the prompt's last row."));
      if (!isKept) bars(card, "target (p)", entry.turn.first_row);
    } else {
      const round = rounds[found].round;
      const draft = round.drafts[entry.column];
      const isNext = entry.isNext || !draft || entry.element.matches(".bonus, .recovered, .plain");
      const why = round.why[entry.column];
      card.append(make("p", "round " + round.round + ", position " + (entry.column + 1) + " of " + (round.drafts.length + 1) + (round.rule ? ", rule " + round.rule : "")));
      if (draft && !(isNext && round.next_kind === "bonus")) {
        const parts = ["draft " + draft.text, "p " + number(draft.p, 4), "q " + number(draft.q, 4)];
        if (typeof draft.u === "number") parts.push("u " + number(draft.u, 4));
        card.append(make("p", parts.join(" · ")));
      }
      for (const refused of round.refused.filter((refused) => refused.column === entry.column)) {
        const q = typeof refused.q === "number" ? " (q " + number(refused.q, 4) + ")" : "";
        card.append(make("p", "The grammar refused " + refused.text + q + ": it expects " + refused.expected));
      }
      if (draft && draft.forced) card.append(make("p", "The grammar allows no other token here, so the draft cost no pass."));
      if (why) card.append(make("p", why));
      bars(card, "target (p)", round.rows[entry.column], draft && !isNext ? draft.id : undefined);
      if (draft) bars(card, "drafter (q)", draft.top, draft.id);
      card.append(make("p", "target pass " + (round.verify_us / 1000).toFixed(2) + " ms" + (draft ? ", this draft " + (draft.us / 1000).toFixed(2) + " ms" : "")));
    }
    // a preview must not cover the pointer, or its token would lose the pointer
    card.classList.toggle("preview", !pinned);
    card.hidden = false;
  };
  const open = (entry) => { pinned = true; show(entry); };
  const close = () => {
    quiet = pinned;
    pinned = false;
    at("card").hidden = true;
    if (current) current.element.classList.remove("on");
    current = null;
  };
  const key = (event, entry) => {
    const list = entry.element.closest("#ladder") ? tokens.slice(transcriptTokens) : tokens.slice(0, transcriptTokens);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      let to = list.indexOf(entry) + step;
      while (list[to] && (list[to].element.classList.contains("later") || !list[to].element.getClientRects().length)) to += step;
      if (list[to]) {
        list[to].element.focus();
        if (pinned) show(list[to]);
      }
      event.preventDefault();
    } else if (event.key === "Enter" || event.key === " ") {
      open(entry);
      event.preventDefault();
      event.stopPropagation();
    }
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === " " && event.target === document.body) {
      toggle();
      event.preventDefault();
    }
  });

  // numbers
  const line = (name, ...values) => {
    const row = make("tr");
    const head = make("th", name);
    head.scope = "row";
    row.append(head, ...values.map((value) => make("td", value)));
    at("numbers").append(row);
  };
  const lanes = [data.summary, data.plain, data.rival].filter(Boolean);
  line("", "speculative", ...(data.plain ? ["plain"] : []), ...(data.rival ? ["rival"] : []));
  line("rounds", ...lanes.map((lane) => lane.rounds));
  line("accepted ÷ drafted", ...lanes.map((lane) => percent(lane.draft_acceptance_rate)));
  line("tokens per round (bonus included)", ...lanes.map((lane) => number(lane.tokens_per_round, 2)));
  line("tokens per second", ...lanes.map((lane) => number(lane.tokens_per_second, 1)));
  const share = (lane, seconds) => percent(lane.decode_seconds ? seconds / lane.decode_seconds : null);
  line("of the time: drafter", ...lanes.map((lane) => share(lane, lane.draft_seconds)));
  line("of the time: target", ...lanes.map((lane) => share(lane, lane.verify_seconds)));
  const blank = lanes.slice(1).map(() => "");
  const ratio = (speedup) => (speedup ? speedup.text : "measuring");
  if (data.plain) {
    line("speedup (measured, over all turns)", ratio(data.speedup), ...blank);
    if (data.speedup && data.speedup.note) line("", data.speedup.note, ...blank);
  }
  if (data.rival) {
    line("against the rival (measured)", ratio(data.speedup_over_rival), ...blank);
    line("the rival's settings", "", ...blank.slice(1), data.rival_settings);
  }

  // plots
  const frame = (title) => {
    const svg = picture("svg", { viewBox: "0 0 400 120", role: "img", "aria-label": title });
    svg.append(picture("text", { x: 4, y: 11 }, title), picture("line", { x1: 30, y1: 100, x2: 395, y2: 100, class: "axis" }));
    at("plots").append(svg);
    return svg;
  };
  const speeds = (name, from) => {
    const points = [];
    let offset = 0;
    for (const turn of data.turns) {
      for (const [x, y] of turn[from]) points.push([offset + x, y]);
      const line = turn[from];
      if (line.length) offset += line[line.length - 1][0];
    }
    return points;
  };
  const spec = speeds("speculative", "speed");
  const plain = speeds("plain", "plain_speed");
  const rival = speeds("rival", "rival_speed");
  if (spec.length > 1) {
    const beside = [plain.length && "dashed: plain", rival.length && "dotted: rival"].filter(Boolean).join(", ");
    const svg = frame("tokens per second over measured time" + (beside && " (" + beside + ")"));
    const wide = largest([...spec, ...plain, ...rival].map((p) => p[0]));
    const high = largest([...spec, ...plain, ...rival].map((p) => p[1]));
    const path = (points) => points.map(([x, y]) => (30 + (x / wide) * 365).toFixed(1) + "," + (100 - (y / high) * 80).toFixed(1)).join(" ");
    if (plain.length) svg.append(picture("polyline", { points: path(plain), class: "plainline" }));
    if (rival.length) svg.append(picture("polyline", { points: path(rival), class: "rivalline" }));
    svg.append(picture("polyline", { points: path(spec), class: "spec" }));
    svg.append(picture("text", { x: 2, y: 26 }, high.toFixed(0)), picture("text", { x: 340, y: 115 }, wide.toFixed(1) + " s"));
  }
  const columns = (title, values, label) => {
    if (!values.length || !largest(values)) return;
    const svg = frame(title);
    const high = largest(values);
    const step = 360 / values.length;
    values.forEach((value, i) => {
      const height = (value / high) * 74;
      svg.append(picture("rect", { x: (32 + i * step).toFixed(1), y: (100 - height).toFixed(1), width: (step * 0.7).toFixed(1), height: height.toFixed(1), class: "bar" }));
      svg.append(picture("text", { x: (32 + i * step).toFixed(1), y: 114 }, label(value, i)));
    });
  };
  columns("share of drafts accepted, by position", data.summary.accepted_per_pos.map((n, i) => n / Math.max(1, data.summary.offered_per_pos[i])), (value, i) => i + 1 + ": " + (value * 100).toFixed(0) + "%");
  columns("rounds that drafted, by accepted drafts", data.summary.acceptance_histogram, (value, i) => i + ": " + value);

  // player
  const scrub = at("scrub");
  scrub.max = rounds.length;
  const place = (to) => {
    shown = Math.max(0, Math.min(rounds.length, to));
    scrub.value = shown;
    const entry = rounds[shown - 1];
    at("where").textContent = shown + " / " + rounds.length + " rounds" + (entry ? ", " + (entry.end / 1e6).toFixed(2) + " s" : "");
    scrub.setAttribute("aria-valuetext", at("where").textContent);
    for (const [element, when] of marked) element.classList.toggle("later", when >= shown);
    rungs.forEach((rung, i) => {
      rung.classList.toggle("later", i >= shown);
      rung.classList.toggle("now", i === shown - 1 && shown < rounds.length);
    });
    if (timer !== null) reveal(rungs[shown - 1]);
  };
  const reveal = (rung) => {
    if (rung) at("ladder").scrollTop = rung.offsetTop - at("ladder").offsetTop - 100;
  };
  const stop = () => {
    clearTimeout(timer);
    timer = null;
    at("play").textContent = "▶ Play";
    at("play").setAttribute("aria-pressed", "false");
  };
  const tick = () => {
    if (shown >= rounds.length) return stop();
    const before = shown ? rounds[shown - 1].end : 0;
    const wait = (rounds[shown].end - before) / 1000 / Number(at("speed").value);
    timer = setTimeout(() => { place(shown + 1); tick(); }, Math.min(2000, wait));
  };
  const toggle = () => {
    if (timer !== null) return stop();
    if (shown >= rounds.length) place(0);
    at("play").textContent = "❚❚ Pause";
    at("play").setAttribute("aria-pressed", "true");
    tick();
  };
  at("play").addEventListener("click", toggle);
  scrub.addEventListener("input", () => { stop(); place(Number(scrub.value)); });
  at("discarded").addEventListener("change", (event) => document.body.classList.toggle("hide-discarded", !event.target.checked));
  place(rounds.length);
})();
