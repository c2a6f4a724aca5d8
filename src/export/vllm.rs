//! What vLLM says of a request with `--per-request-spec-decode-metrics detailed`, one object a turn.

use serde_json::{Value, json};

use crate::protocol::Lane;
use crate::session::{Session, Turn};

use super::place::Out;
use super::{Stop, write_json};

pub(super) fn write(session: &Session, out: Out<'_>) -> Result<(), Stop> {
    let answered: Vec<&Turn> =
        session.turns().iter().filter(|turn| !turn.answer(Lane::Speculative).tokens.is_empty()).collect();
    if answered.is_empty() {
        return Err(Stop::Nothing("answer"));
    }
    let model = session.header().map_or("", |header| header.model.name.as_str());
    Ok(write_json(out, &answered.into_iter().map(|turn| request(turn, model)).collect::<Vec<_>>())?)
}

fn request(turn: &Turn, model: &str) -> Value {
    let answer = turn.answer(Lane::Speculative);
    let run = answer.stats().summary();
    let complete = || answer.rounds.iter().filter(|round| round.is_complete);
    json!({
        "id": format!("turn-{}", turn.number),
        "object": "text_completion",
        "model": model,
        "choices": [{ "index": 0, "text": answer.text(), "finish_reason": answer.finished }],
        "usage": {
            "prompt_tokens": answer.prompt.len(),
            "completion_tokens": answer.tokens.len(),
            "total_tokens": answer.prompt.len() + answer.tokens.len(),
        },
        "metrics": { "speculative_decoding": {
            "mean_acceptance_length": run.mean_acceptance_length,
            "draft_acceptance_rate": run.draft_acceptance_rate,
            "acceptance_histogram": run.acceptance_histogram,
            "num_spec_steps": run.num_spec_steps,
            "num_accepted_draft_tokens": run.num_accepted_draft_tokens,
            "num_draft_tokens": run.num_draft_tokens,
            "num_spec_tokens": run.num_spec_tokens,
            "per_step_accepted": complete().map(|round| round.accepted()).collect::<Vec<_>>(),
            "per_step_drafted": complete().map(|round| round.drafts.len()).collect::<Vec<_>>(),
        }},
    })
}
