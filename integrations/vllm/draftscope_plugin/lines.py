"""From a verification step to lines of the trace format. Pure: no clock, no socket, no engine."""

from dataclasses import dataclass, field

VERSION = 4  # of the trace format: docs/trace-format.md in draftscope
MOST_DRAFTS = 255  # drafts are numbered in a byte


@dataclass
class Step:
    """One request's part of one verification step."""

    request: str
    base_len: int  # tokens in the target's cache before the step
    drafted: list  # ids, in order
    committed: list  # accepted drafts, then the target's own token
    rows: list = field(default_factory=list)  # k + 1 lists of (id, p), most probable first; empty if unknown
    p: list = field(default_factory=list)  # the target's probability of each draft, or empty
    q: list = field(default_factory=list)  # the drafter's, or empty
    draft_us: int = 0
    verify_us: int = 0
    sample_us: int = 0

    @property
    def accepted(self):
        return min(max(0, len(self.committed) - 1), len(self.drafted))


def header(*, engine, engine_version, model, drafter=None, draft_len=0, rule="rejection", started_unix_ms=0):
    """The header of a stream. `model` has name, vocab, context, dtype, device; `drafter` kind and name."""
    info = None
    if drafter:
        info = {
            "kind": drafter["kind"], "name": drafter["name"], "sha256": None, "dtype": "not reported",
            "weight_bytes": 0, "kv_bytes_per_token": 0, "draft_vocab": model.get("vocab", 0),
        }
    return {
        "version": VERSION,
        "program": "draftscope-plugin 0.2.0",
        "model": {
            "name": model.get("name", ""), "architecture": "", "file": model.get("name", ""), "sha256": None,
            "layers": 0, "d_model": 0, "vocab": model.get("vocab", 0), "context_length": model.get("context", 0),
            "weight_bytes": 0, "kv_bytes_per_token": 0,
        },
        "drafter": info,
        "settings": {
            "draft_len": min(int(draft_len), 15), "drafter": info["kind"] if info else "none", "rule": rule,
            "sampling": {}, "max_tokens": 1, "baseline": "off",
        },
        "ctx_len": model.get("context", 0),
        "device": model.get("device", ""),
        "backend": engine,
        "dtype": model.get("dtype", ""),
        "threads": 0,
        "started_unix_ms": int(started_unix_ms),
        "capabilities": {"can_generate": False},
        "engine": {"name": engine, "version": engine_version, "abilities": []},
    }


def started(head):
    """The first line of a stream."""
    return {"seq": 0, "at_us": 0, "type": "started", "header": head}


def dropped(rounds):
    """A line that says how many rounds were left out so far."""
    return {"type": "dropped", "rounds": rounds}


def notice(message):
    """A line with a sentence for the reader."""
    return {"type": "notice", "message": message}


def of_step(step, number, piece):
    """The lines of a step as round `number`. `piece(id)` is the token as the trace format writes it."""
    k = min(len(step.drafted), MOST_DRAFTS)
    drafted, accepted = step.drafted[:k], min(step.accepted, k)
    unknown = {"top": [], "tail": 1.0}
    lines = [{"type": "round_started", "base_len": step.base_len, "draft_len": k}]
    for index, token in enumerate(drafted):
        line = {"type": "drafted", "index": index, "token": piece(token), "top": unknown,
                "took_us": step.draft_us // k}
        q = _at(step.q, index)
        if q is not None:
            line["q"] = q
        lines.append(line)
    if step.rows:
        rows = [_prediction(row, piece) for row in step.rows[: k + 1]]
        lines.append({"type": "scored", "rows": rows, "verify_us": step.verify_us, "sample_us": step.sample_us})
    judgements = []
    for index in range(k):
        outcome = "accepted" if index < accepted else "rejected" if index == accepted else "not_reached"
        judgement = {"outcome": outcome, "p": _at(step.p, index), "q": _at(step.q, index)}
        judgements.append({key: value for key, value in judgement.items() if value is not None})
    next_id = step.committed[accepted] if accepted < len(step.committed) else None
    lines.append({"type": "verified", "judgements": judgements, "next": next_id,
                  "next_kind": "bonus" if accepted == k else "recovered"})
    lines.append({"type": "committed", "tokens": [piece(token) for token in step.committed[: k + 1]],
                  "rollback_us": 0, "clock_us": 0})
    for line in lines:
        line["round"] = number
        line["request"] = step.request
    return lines


def _at(values, index):
    return _probability(values[index]) if index < len(values) and values[index] is not None else None


def _probability(value):
    value = float(value)
    return round(min(max(value, 0.0), 1.0), 6) if value == value else 0.0


def _prediction(row, piece):
    top = [dict(piece(token), prob=_probability(p)) for token, p in row]
    return {"top": top, "tail": round(max(0.0, 1.0 - sum(one["prob"] for one in top)), 6)}
