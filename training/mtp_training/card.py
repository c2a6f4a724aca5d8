"""The card of a module: what it was made for and of, how, and how often it agreed with the target; from what its run left behind.

What it is worth in the program is `evaluate`'s to say, and is not in it.
"""

import json

TEMPLATE = """# A draft module for {target}

It makes drafts for the model named here, and for no other; it never changes what is answered.

- **Target**: {target}, {blocks} blocks of width {width}. The module's embedding and head are the target's.
- **Shape**: norms of the embedding of x[t+1] and of what the target holds at t, a projection, one Llama block, a final norm{fused}.
  The head is cut down to {vocab:,} tokens and those that stand in the text. {weights:,} weights.
- **Data**: the target's own answers{data}.
- **Training**: {starts:,} chain starts in {steps:,} steps, at temperature {temperature}, unrolled to depth {depth}, from {init}.
- **Limits**: nothing was trained on beyond {ctx:,} tokens of a conversation, nor in other languages and forms than the data's.

{agreement}

`python -m mtp_training.evaluate` measures tokens per round by category in the program itself.
"""


def lines(path):
    """JSON lines of a log; none where there is no log, and what was cut off by a stop is left out."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def agreement(log):
    """The last figures of validation prompts by depth, as a table."""
    last = next((line for line in reversed(list(lines(log))) if line.get("event") in ("validation", "final") and line.get("agree")), None)
    if last is None:
        return "Nothing was validated."
    rows = "\n".join(f"| {depth} | {agree:.3f} | {overlap:.3f} |" for depth, (agree, overlap) in enumerate(zip(last["agree"], last["overlap"]), 1))
    return f"""On validation prompts, after {last["tokens"]:,} chain starts (agreement: the module's best token is the target's; overlap: Σ min(p, q), the
share of drafts that speculative sampling keeps):

| depth | agreement | overlap |
|---|---|---|
{rows}"""


def data(stats):
    """What `make_data stats` counted, as half a sentence."""
    if not stats.exists():
        return " (not counted: `make_data stats` was not run)"
    told = json.loads(stats.read_text())
    parts = ", ".join(f"{category} {tokens:,}" for category, tokens in sorted(told["answer_tokens_by_category"].items(), key=lambda part: -part[1]))
    return (f", {told['total']['answer']:,} tokens to {told['different_first_turns']:,} different prompts ({parts}); "
            f"{told['excluded_as_near']:,} conversations were left out because their prompt is near a measured one")


def card(config, run, target, saved):
    """Markdown; `saved` is what state.pt holds."""
    train, layers, module = config["train"], saved.get("hidden_layers", []), saved["module"]
    fused = f";\n  to the state after the final norm is added what the stream holds behind blocks {', '.join(map(str, layers))}, through one matrix" if layers else ""
    depth = 1 + sum(saved["state"]["tokens"] >= t for t in train["deeper_at_tokens"])
    init = "the target's last block" if train["init"] == "layer" else "an earlier module"
    name = target.reader.fields.get("general.name")
    return TEMPLATE.format(
        target=" ".join(name.contents().split()) if name else "a model without a name", blocks=target.layers, width=target.shape.hidden, fused=fused, vocab=len(saved["vocab"]),
        weights=sum(weight.numel() for weight in module.values()), data=data(config.data / "stats.json"), starts=int(saved["state"]["tokens"]),
        steps=saved["state"]["step"], temperature=train["temperature"], depth=depth, init=init, ctx=config["data"]["ctx"],
        agreement=agreement(config.runs / run / "log.jsonl"))
