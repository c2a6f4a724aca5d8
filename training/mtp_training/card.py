"""The card of a module, from the files of its run: target, data, training, and agreement with the target.

It has no speeds and no tokens per round; `evaluate` measures these.
"""

import json

TEMPLATE = """# A draft module for {target}

It drafts for the model named here and for no other. It never changes the answers.

- **Target**: {target}, {blocks} blocks of width {width}. The module uses the target's embedding and head.
- **Shape**: norms of the embedding of x[t+1] and of the target's state at t, a projection, one Llama block, a final norm{fused}.
  The head is reduced to {vocab:,} tokens and those of the text. {weights:,} weights.
- **Data**: the target's own answers{data}.
- **Training**: {starts:,} chain starts in {steps:,} steps, at temperature {temperature}, unrolled to depth {depth}, from {init}.
- **Limits**: it was trained on at most {ctx:,} tokens of a conversation, and only on the languages and forms of the data.

{agreement}

`python -m mtp_training.evaluate` measures tokens per round by category in the program itself.
"""


def lines(path):
    """JSON lines of a log; none if there is no log. A truncated line is skipped."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def agreement(log):
    """The last validation, by depth, as a table."""
    last = next((line for line in reversed(list(lines(log))) if line.get("event") in ("validation", "final") and line.get("agree")), None)
    if last is None:
        return "There was no validation."
    rows = "\n".join(f"| {depth} | {agree:.3f} | {overlap:.3f} |" for depth, (agree, overlap) in enumerate(zip(last["agree"], last["overlap"]), 1))
    return f"""On validation prompts, after {last["tokens"]:,} chain starts (agreement: the module's best token is the target's; overlap: Σ min(p, q), the
share of drafts that speculative sampling accepts):

| depth | agreement | overlap |
|---|---|---|
{rows}"""


def data(stats):
    """The counts of `make_data stats`, as a part of a sentence."""
    if not stats.exists():
        return " (not counted: `make_data stats` was not run)"
    counts = json.loads(stats.read_text())
    parts = ", ".join(f"{category} {tokens:,}" for category, tokens in sorted(counts["answer_tokens_by_category"].items(), key=lambda part: -part[1]))
    return (f", {counts['total']['answer']:,} tokens to {counts['different_first_turns']:,} different prompts ({parts}); "
            f"{counts['excluded_as_near']:,} conversations were excluded because their prompt is near a measured one")


def card(config, run, target, saved):
    """The card as Markdown; `saved` is the content of state.pt."""
    train, layers, module = config["train"], saved.get("hidden_layers", []), saved["module"]
    fused = f";\n  the stream after blocks {', '.join(map(str, layers))} is added to the state after the final norm, through one matrix" if layers else ""
    depth = 1 + sum(saved["state"]["tokens"] >= t for t in train["deeper_at_tokens"])
    init = "the target's last block" if train["init"] == "layer" else "an earlier module"
    name = target.reader.fields.get("general.name")
    return TEMPLATE.format(
        target=" ".join(name.contents().split()) if name else "a model without a name", blocks=target.layers, width=target.shape.hidden, fused=fused, vocab=len(saved["vocab"]),
        weights=sum(weight.numel() for weight in module.values()), data=data(config.data / "stats.json"), starts=int(saved["state"]["tokens"]),
        steps=saved["state"]["step"], temperature=train["temperature"], depth=depth, init=init, ctx=config["data"]["ctx"],
        agreement=agreement(config.runs / run / "log.jsonl"))
