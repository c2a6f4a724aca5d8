//! Counters of speculation in the text format of Prometheus, as llama-server, vLLM and SGLang publish them.
//!
//! Invariant: numbers that are not finite or negative are left out, and at most `MAX_POSITIONS` positions are kept.

use std::collections::BTreeMap;

use crate::protocol::Counters;

/// Most positions that are read.
const MAX_POSITIONS: usize = 256;

/// Reads a page of metrics.
#[must_use]
pub fn parse(text: &str) -> Counters {
    let mut counters = Counters::default();
    let mut positions: BTreeMap<usize, u64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels, value)) = sample(line) else { continue };
        let count = value.round() as u64;
        let add = |sum: &mut Option<u64>| *sum = Some(sum.unwrap_or(0).saturating_add(count));
        match suffix(name) {
            "spec_decode_num_drafts_total" | "spec_verify_calls_total" => add(&mut counters.steps),
            "spec_decode_num_draft_tokens_total" => add(&mut counters.drafted),
            "spec_decode_num_accepted_tokens_total" => add(&mut counters.accepted),
            "spec_decode_num_accepted_tokens_per_pos_total" => {
                let position = label(labels, "position").and_then(|position| position.parse().ok());
                if let Some(position) = position.filter(|position| *position < MAX_POSITIONS) {
                    let sum = positions.entry(position).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
            "generation_tokens_total" | "tokens_predicted_total" => add(&mut counters.generated),
            "num_requests_running" | "requests_processing" | "num_running_reqs" => add(&mut counters.running),
            "num_requests_waiting" | "requests_deferred" | "num_queue_reqs" => add(&mut counters.waiting),
            "spec_accept_length" => counters.mean_length = Some(value),
            "spec_accept_rate" => counters.rate = Some(value),
            _ => {}
        }
    }
    let longest = positions.keys().next_back().map_or(0, |last| last + 1);
    counters.accepted_per_pos = (0..longest).map(|at| positions.get(&at).copied().unwrap_or(0)).collect();
    counters
}

/// The name without the engine's prefix.
fn suffix(name: &str) -> &str {
    name.split_once(':')
        .filter(|(engine, _)| matches!(*engine, "vllm" | "llamacpp" | "sglang"))
        .map_or("", |(_, rest)| rest)
}

/// Name, labels and value of a line.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let (name, rest) = match line.split_once('{') {
        Some((name, rest)) => (name, rest.rsplit_once('}')?),
        None => {
            let (name, value) = line.split_once(' ')?;
            (name, ("", value))
        }
    };
    let value: f64 = rest.1.split_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((name.trim(), rest.0, value))
}

/// The value of a label. Values with a quotation mark in them are not read.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels.split(',').find_map(|label| {
        let (key, value) = label.split_once('=')?;
        (key.trim() == name).then(|| value.trim().trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = include_str!("../../tests/fixtures/attach/vllm/metrics-before.prom");
    const AFTER: &str = include_str!("../../tests/fixtures/attach/vllm/metrics-after.prom");

    #[test]
    fn vllm_s_counters_are_read_and_subtracted() {
        let [before, after] = [BEFORE, AFTER].map(parse);
        assert_eq!(before.accepted_per_pos.len(), 4, "k");
        let news = after.since(&before);
        assert_eq!((news.steps, news.drafted, news.accepted, news.generated), (Some(2), Some(8), Some(6), Some(14)));
        assert_eq!(news.accepted_per_pos, [2, 2, 1, 1]);
        assert_eq!(before.since(&after), before, "a server that was started anew counts from 0");
    }

    #[test]
    fn llama_server_s_and_sglang_s_names_are_read_and_others_left_out() {
        let counters = parse(
            "# HELP x\nllamacpp:spec_decode_num_drafts_total 7\nllamacpp:requests_processing 2\n\
             llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 3\n\
             llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"9999999\"} 3\n\
             sglang:spec_accept_length{model=\"a,b\"} 2.5\nother:spec_decode_num_drafts_total 9\n\
             llamacpp:tokens_predicted_total NaN\nvllm:generation_tokens_total -1\nbroken{",
        );
        assert_eq!((counters.steps, counters.running, counters.generated), (Some(7), Some(2), None));
        assert_eq!((counters.accepted_per_pos.as_slice(), counters.mean_length), ([0, 3].as_slice(), Some(2.5)));
    }
}
