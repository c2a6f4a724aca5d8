//! What vLLM reports of a request with `--per-request-spec-decode-metrics detailed`: one object per turn.

use serde_json::{Value, json};

use draftscope_protocol::{Lane, StopReason};
use draftscope_session::{Session, Turn};

use super::atomic_file::Out;
use super::error::WriteError;
use super::json_line::write_json;

pub(super) fn write(session: &Session, out: Out<'_>) -> Result<(), WriteError> {
    let answered: Vec<&Turn> =
        session.turns().iter().filter(|turn| !turn.answer(Lane::Speculative).tokens.is_empty()).collect();
    if answered.is_empty() {
        return Err(WriteError::Nothing("answer"));
    }
    let run = session.header().map_or(("", 0), |header| (header.model.name.as_str(), header.started_unix_ms / 1000));
    Ok(write_json(out, &answered.into_iter().map(|turn| request(turn, run)).collect::<Vec<_>>())?)
}

/// The finish reason in the API's words; none for a stopped answer, for which the API has no word.
fn reason(finished: Option<StopReason>) -> Option<&'static str> {
    match finished? {
        StopReason::Eos => Some("stop"),
        StopReason::MaxTokens | StopReason::ContextFull => Some("length"),
        StopReason::Stopped | StopReason::Measured | StopReason::Refused | StopReason::BrokenOff => None,
    }
}

fn request(turn: &Turn, (model, created): (&str, u64)) -> Value {
    let answer = turn.answer(Lane::Speculative);
    let run = answer.stats().summary();
    // vLLM does not count a step that drafted nothing
    let steps = || answer.rounds.iter().filter(|round| round.is_complete() && !round.drafts.is_empty());
    json!({
        "id": format!("turn-{}", turn.number),
        "object": "text_completion",
        "created": created,
        "model": model,
        "choices": [{ "index": 0, "text": answer.text(), "finish_reason": reason(answer.finished) }],
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
            "per_step_accepted": steps().map(|round| round.accepted()).collect::<Vec<_>>(),
            "per_step_drafted": steps().map(|round| round.drafts.len()).collect::<Vec<_>>(),
        }},
    })
}
