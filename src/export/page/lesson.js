(() => {
  at("title").textContent = data.title;
  at("summary").textContent = data.summary;
  const sections = [];
  let right = 0;
  let asked = 0;
  const score = () => { if (asked) at("score").textContent = "right at the first try: " + right + " of " + asked; };
  const unlock = (index) => {
    const next = sections[index + 1];
    if (!next || !next.classList.contains("locked")) return;
    next.classList.remove("locked");
    next.scrollIntoView({ block: "nearest" });
  };
  const onward = (section, index, label) => {
    if (index + 1 >= data.steps.length) return;
    const button = make("button", label || "Next", "next");
    button.type = "button";
    button.addEventListener("click", () => { button.disabled = true; unlock(index); });
    section.append(button);
  };

  // a question: its first answer scores; a wrong choice answers its own belief
  const question = (section, step, index, show) => {
    let tries = 0;
    const replies = make("div");
    const buttons = step.choices.map(([text, why], choice) => {
      const button = make("button", text);
      button.type = "button";
      button.addEventListener("click", () => {
        const isRight = choice === step.right;
        if (tries === 0) { asked += 1; if (isRight) right += 1; score(); }
        tries += 1;
        button.classList.add(isRight ? "right" : "wrong");
        button.disabled = true;
        if (!isRight) {
          replies.append(make("p", "No. " + why, "why"));
          const hint = step.hints[tries - 1];
          if (hint) replies.append(make("p", "Hint: " + hint, "hint"));
        }
        if (isRight || tries >= step.choices.length - 1) {
          buttons.forEach((other, place) => { other.disabled = true; if (place === step.right) other.classList.add("right"); });
          replies.append(make("p", step.reveal, "reveal"));
          if (step.answered !== null) (show ? show(step.answered) : replies.append(drawing(step.answered)[0]));
          onward(section, index);
        }
      });
      return button;
    });
    section.append(...buttons, replies);
  };

  // the cost model: E = 1 + a + … + a^k, cost = 1 + k·row + k·draft, in units of T(1)
  const sliders = (section, step, index) => {
    const names = { acceptance: "acceptance a", k: "drafts k", row: "a further row", draft: "a draft d" };
    const point = Object.assign({}, step.task.start);
    const out = make("p");
    let isDone = false;
    const show = () => {
      let tokens = 0;
      for (let i = 0; i <= point.k; i += 1) tokens += Math.pow(point.acceptance, i);
      const cost = 1 + point.k * point.row + point.k * point.draft;
      const speedup = tokens / cost;
      out.textContent = "calculated: " + tokens.toFixed(2) + " tokens a round for " + cost.toFixed(2) + " plain tokens: speedup " + speedup.toFixed(2) + "×";
      if (!isDone && speedup >= step.task.speedup[0] && speedup <= step.task.speedup[1]) {
        isDone = true;
        section.append(make("p", "Done.", "reveal"));
        onward(section, index);
      }
    };
    for (const [name, text] of Object.entries(names)) {
      const label = make("label", text);
      const input = make("input");
      input.type = "range";
      [input.min, input.max, input.step] = name === "k" ? [1, 15, 1] : [0, 1, 0.01];
      input.value = point[name];
      input.disabled = !step.task.free.includes(name);
      const unit = name === "row" || name === "draft" ? " of T(1)" : "";
      const value = make("output", point[name] + unit);
      input.addEventListener("input", () => { point[name] = Number(input.value); value.textContent = input.value + unit; show(); });
      label.append(input, value);
      section.append(label);
    }
    section.append(out);
    show();
    helped(section, step.hints);
    onward(section, index, "Skip");
  };

  // hints, one for each press
  const helped = (section, hints) => {
    if (!hints.length) return;
    let given = 0;
    const box = make("div");
    const button = make("button", "Hint", "next");
    button.type = "button";
    button.addEventListener("click", () => {
      box.append(make("p", "Hint: " + hints[given], "hint"));
      given += 1;
      button.disabled = given >= hints.length;
    });
    section.append(box, button);
  };

  // a picture of the program's panels, as text for those who do not see it
  const drawing = (frame) => {
    const box = make("div", null, "scroll");
    const image = make("img", null, "drawing");
    box.append(image);
    const show = (place) => { [image.src, image.alt] = [data.pictures[place].src, data.pictures[place].text]; };
    show(frame);
    return [box, show];
  };

  // an action: step through the recorded run until its goal is reached
  const stepper = (section, step, index, show) => {
    let place = 0;
    let isDone = false;
    const bar = make("div", null, "stepper");
    const back = make("button", "◂ back");
    const next = make("button", "step ▸");
    const where = make("output");
    const go = (to) => {
      place = Math.max(0, Math.min(step.frames.length - 1, to));
      show(step.frames[place]);
      where.textContent = place + " of " + (step.frames.length - 1) + " steps";
      [back.disabled, next.disabled] = [place === 0, place === step.frames.length - 1];
      if (!isDone && next.disabled) {
        isDone = true;
        section.append(make("p", "Done.", "reveal"));
        onward(section, index);
      }
    };
    for (const button of [back, next]) button.type = "button";
    back.addEventListener("click", () => go(place - 1));
    next.addEventListener("click", () => go(place + 1));
    bar.append(back, next, where);
    section.append(bar);
    go(0);
  };

  data.steps.forEach((step, index) => {
    const section = make("section");
    if (index > 0) section.className = "locked";
    section.append(make("h2", (index + 1) + " of " + data.steps.length), make("p", step.text));
    sections.push(section);
    at("steps").append(section);
    if (step.run) {
      const said = "The recorded run: “" + step.run.prompt + "”, k = " + step.run.k + ", drafter " + step.run.drafter + ", rule " + step.run.rule;
      section.append(make("p", said));
      if (step.run.page) {
        // the player shows what the next steps ask: it is opened by choice
        const more = make("details");
        more.className = "run";
        more.append(make("summary", "Play it (shows what the next steps ask)"));
        more.addEventListener("toggle", () => {
          if (more.querySelector("iframe")) return;
          const frame = make("iframe");
          frame.title = said;
          frame.srcdoc = step.run.page;
          more.append(frame);
        });
        section.append(more);
      }
    }
    let show = null;
    if (step.frames.length) {
      const [box, set] = drawing(step.frames[0]);
      section.append(box);
      show = set;
    }
    if (step.choices.length) question(section, step, index, show);
    else if (step.task) sliders(section, step, index);
    else if (step.frames.length > 1) stepper(section, step, index, show);
    else onward(section, index);
    if (step.source.length) {
      const more = make("details");
      more.append(make("summary", "Sources"));
      for (const source of step.source) more.append(make("p", source));
      section.append(more);
    }
  });
})();
