
const none = "–";
const known = (value) => value !== null && value !== undefined;
const decimals = (value) => (known(value) ? value.toFixed(2) : none);
const percent = (value) => (known(value) ? `${Math.round(value * 100)} %` : none);
const times = (value, disturbed) => (known(value) ? `${disturbed ? "~" : ""}${value.toFixed(2)}×` : none);
const figures = ["tokens_per_round", "draft_acceptance_rate", "speedup"];

function cells(row, values, disturbed, most) {
  const texts = [decimals(values[0]), percent(values[1]), times(values[2], disturbed)];
  texts.forEach((text, index) => {
    const cell = make("td", text);
    if (most && known(values[index]) && most[index] > 0) {
      cell.className = "shaded";
      cell.style.setProperty("--share", `${Math.min(100, (values[index] / most[index]) * 100)}%`);
    }
    row.append(cell);
  });
}

function line(body, name, values, disturbed, most, classes) {
  const row = make("tr", null, classes);
  const head = make("th", name);
  head.scope = "row";
  row.append(head);
  cells(row, values, disturbed, most);
  body.append(row);
}

function matrix(of) {
  const table = make("table");
  const k = of.k === of.rule ? "" : ` k = ${of.k}`;
  table.append(make("caption", `${of.drafter} ${of.rule}${k}${of.first_answers_only ? ", first answers only" : ""}`));
  const head = make("tr");
  ["category", "tokens per round", "accepted", "speedup"].forEach((name) => {
    const cell = make("th", name);
    cell.scope = "col";
    head.append(cell);
  });
  table.createTHead().append(head);
  const body = table.createTBody();
  const pooled = (row) => figures.map((name) => row[name].pooled);
  const values = of.categories.map(pooled);
  const most = [0, 0, 0].map((_, index) => (index === 1 ? 1 : Math.max(0, ...values.map((row) => row[index] ?? 0))));
  of.categories.forEach((row, index) => line(body, row.category, values[index], row.disturbed, most));
  if (of.all) {
    const disturbed = of.all.disturbed;
    line(body, "all, pooled", pooled(of.all), disturbed, null, "sum first");
    line(body, "mean of answers", figures.map((name) => of.all[name].mean_of_answers), disturbed, null, "sum");
    line(body, "mean of categories", figures.map((name) => of.mean_of_categories[name]), disturbed, null, "sum");
  }
  const wide = make("div", null, "wide");
  wide.append(table);
  return wide;
}

function rows() {
  const spread = (value, digits) =>
    known(value) ? `${value.median.toFixed(digits)} (${value.p10.toFixed(digits)}–${value.p90.toFixed(digits)})` : none;
  const head = make("tr");
  const names = ["drafter", "rule", "k", "category", "answers", "speedup", "tokens/s", "tokens per round", "accepted", "identical"];
  names.forEach((name) => head.append(make("th", name)));
  at("rows").createTHead().append(head);
  const body = at("rows").createTBody();
  data.rows.forEach((row) => {
    const line = make("tr");
    line.append(make("th", row.drafter));
    const texts = [
      row.rule, row.k, row.category, row.answers, (row.disturbed && row.speedup ? "~" : "") + spread(row.speedup, 2),
      spread(row.speculative_tokens_per_second, 0), spread(row.tokens_per_round, 2), percent(row.draft_acceptance_rate),
      known(row.identical) ? `${row.identical} of ${row.answers}` : none,
    ];
    texts.forEach((text) => line.append(make("td", String(text))));
    body.append(line);
  });
}

const header = data.header || {};
const parts = [
  header.model && header.model.name, header.device, header.program, `${data.prompts} prompts`,
  `${data.repeats} ${data.repeats === 1 ? "repeat" : "repeats"}`, `answers of at most ${data.max_tokens} tokens`,
  `temperature ${data.temperature}`, `sha256 of the prompts ${data.suite_sha256.slice(0, 8)}…`,
];
at("about").textContent = parts.filter(Boolean).join(" · ");
data.matrix.forEach((of) => at("matrix").append(matrix(of)));
rows();
