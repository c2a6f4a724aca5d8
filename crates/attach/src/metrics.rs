//! Counters of speculation and of requests in the text format of Prometheus, as llama-server, vLLM and SGLang publish
//! them, also where something in between renames them (`ray_vllm:…`, `ray_vllm_…`) or leaves `_total` out.
//!
//! Invariant: numbers that are not finite or negative are left out, and at most `MAX_POSITIONS` positions and
//! `MAX_BUCKETS` buckets are kept. The series of one name are added up; where one figure is published under several
//! names, one of them counts.

use std::collections::BTreeMap;

use draftscope_protocol::{Counters, Histogram};

/// Most positions that are read.
const MAX_POSITIONS: usize = 256;

/// Most buckets of a histogram that are read.
const MAX_BUCKETS: usize = 256;

/// The engines whose names are known, and what they are called.
const ENGINES: [(&str, &str); 3] = [("vllm", "vLLM"), ("llamacpp", "llama-server"), ("sglang", "SGLang")];

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Metric {
    Steps,
    Drafted,
    Accepted,
    AcceptedPerPos,
    Generated,
    Running,
    Waiting,
    MeanLength,
    Rate,
    KvUse,
    PrefixQueries,
    PrefixHits,
    PrefixRate,
    /// llama-server's: tokens of prompts that were computed, and those that were in a cache.
    Prompt,
    PromptCached,
    WritingSeconds,
    FirstToken,
    BetweenTokens,
    Whole,
}

/// Names without the engine's prefix and without `_total`.
const NAMES: [(&str, Metric); 31] = [
    ("spec_decode_num_drafts", Metric::Steps),
    ("spec_verify_calls", Metric::Steps),
    ("spec_decode_num_draft_tokens", Metric::Drafted),
    ("spec_decode_num_accepted_tokens", Metric::Accepted),
    ("spec_decode_num_accepted_tokens_per_pos", Metric::AcceptedPerPos),
    ("generation_tokens", Metric::Generated),
    ("tokens_predicted", Metric::Generated),
    ("num_requests_running", Metric::Running),
    ("requests_processing", Metric::Running),
    ("num_running_reqs", Metric::Running),
    ("num_requests_waiting", Metric::Waiting),
    ("requests_deferred", Metric::Waiting),
    ("num_queue_reqs", Metric::Waiting),
    ("spec_accept_length", Metric::MeanLength),
    ("spec_accept_rate", Metric::Rate),
    ("kv_cache_usage_perc", Metric::KvUse),
    ("gpu_cache_usage_perc", Metric::KvUse),
    ("kv_cache_usage_ratio", Metric::KvUse),
    ("token_usage", Metric::KvUse),
    ("prefix_cache_queries", Metric::PrefixQueries),
    ("gpu_prefix_cache_queries", Metric::PrefixQueries),
    ("prefix_cache_hits", Metric::PrefixHits),
    ("gpu_prefix_cache_hits", Metric::PrefixHits),
    ("cache_hit_rate", Metric::PrefixRate),
    ("prompt_tokens", Metric::Prompt),
    ("prompt_tokens_cached", Metric::PromptCached),
    ("tokens_predicted_seconds", Metric::WritingSeconds),
    ("time_to_first_token_seconds", Metric::FirstToken),
    ("inter_token_latency_seconds", Metric::BetweenTokens),
    ("time_per_output_token_seconds", Metric::BetweenTokens),
    ("e2e_request_latency_seconds", Metric::Whole),
];

/// The series of one name, added up.
#[derive(Clone, Debug, Default)]
struct Series {
    sum: f64,
    samples: u32,
    per_pos: BTreeMap<usize, f64>,
    histogram: Buckets,
}

#[derive(Clone, Debug, Default)]
struct Buckets {
    /// By limit; its bits order positive numbers as the numbers themselves.
    upto: BTreeMap<u64, f64>,
    sum: f64,
    count: f64,
}

/// Reads a page of metrics.
#[must_use]
pub fn parse(text: &str) -> Counters {
    let mut read: BTreeMap<(Metric, &str), BTreeMap<&str, Series>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels, value)) = sample(line) else { continue };
        let Some((engine, metric, part)) = known(name) else { continue };
        // the name without the part of a histogram, so that its parts stay together
        let base = name.strip_suffix(part).unwrap_or(name);
        let series = read.entry((metric, engine)).or_default().entry(base).or_default();
        series.add((metric, part), labels, value);
    }
    // one figure under several names, such as with and without `_total`, is one figure
    let mut found: BTreeMap<Metric, Vec<Series>> = BTreeMap::new();
    for ((metric, _), names) in read {
        let fullest = names.into_values().max_by(|a, b| a.weight().total_cmp(&b.weight()));
        found.entry(metric).or_default().extend(fullest);
    }
    counters(&found)
}

impl Series {
    fn add(&mut self, (metric, part): (Metric, &str), labels: &str, value: f64) {
        self.samples += 1;
        match (metric, part) {
            (Metric::AcceptedPerPos, _) => {
                let position = label(labels, "position").and_then(|position| position.parse().ok());
                if let Some(position) = position.filter(|position| *position < MAX_POSITIONS) {
                    *self.per_pos.entry(position).or_default() += value;
                }
            }
            (_, "_bucket") => {
                let limit = label(labels, "le").and_then(|limit| limit.parse::<f64>().ok());
                let limit = limit.filter(|limit| limit.is_finite() && *limit >= 0.0).map(f64::to_bits);
                let buckets = &mut self.histogram.upto;
                if let Some(limit) = limit.filter(|limit| buckets.len() < MAX_BUCKETS || buckets.contains_key(limit)) {
                    *buckets.entry(limit).or_default() += value;
                }
            }
            (_, "_sum") => self.histogram.sum += value,
            (_, "_count") => self.histogram.count += value,
            _ => self.sum += value,
        }
    }

    /// Of several names of one figure, the largest counts: the others are of a part of the engines, or stand still.
    fn weight(&self) -> f64 {
        self.sum + self.per_pos.values().sum::<f64>() + self.histogram.count
    }
}

fn counters(found: &BTreeMap<Metric, Vec<Series>>) -> Counters {
    let of = |metric| found.get(&metric).map(Vec::as_slice).unwrap_or_default();
    let total = |metric| of(metric).iter().map(|series| series.sum).reduce(|a, b| a + b);
    let sum = |metric| total(metric).map(whole);
    let mean = |metric| {
        let samples: u32 = of(metric).iter().map(|series| series.samples).sum();
        total(metric).map(|sum| sum / f64::from(samples.max(1)))
    };
    let mut positions: BTreeMap<usize, f64> = BTreeMap::new();
    for (position, count) in of(Metric::AcceptedPerPos).iter().flat_map(|series| &series.per_pos) {
        *positions.entry(*position).or_default() += count;
    }
    let longest = positions.keys().next_back().map_or(0, |last| last + 1);
    // llama-server publishes what it computed, and what it found
    let looked_up = sum(Metric::Prompt).zip(sum(Metric::PromptCached)).map(|(rest, hits)| rest.saturating_add(hits));
    Counters {
        steps: sum(Metric::Steps),
        drafted: sum(Metric::Drafted),
        accepted: sum(Metric::Accepted),
        accepted_per_pos: (0..longest).map(|at| whole(positions.get(&at).copied().unwrap_or(0.0))).collect(),
        generated: sum(Metric::Generated),
        running: sum(Metric::Running),
        waiting: sum(Metric::Waiting),
        mean_length: mean(Metric::MeanLength),
        rate: mean(Metric::Rate),
        kv_use: mean(Metric::KvUse),
        prefix_queries: sum(Metric::PrefixQueries).or(looked_up),
        prefix_hits: sum(Metric::PrefixHits).or(sum(Metric::PromptCached)),
        prefix_rate: mean(Metric::PrefixRate),
        first_token: histogram(of(Metric::FirstToken)),
        between_tokens: histogram(of(Metric::BetweenTokens)),
        whole: histogram(of(Metric::Whole)),
        writing_seconds: total(Metric::WritingSeconds),
    }
}

fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// The histograms of several engines, added up; those with other limits than the first are left out.
fn histogram(all: &[Series]) -> Option<Histogram> {
    let mut all = all.iter().map(|series| &series.histogram);
    let first = all.next()?;
    let mut sum = first.clone();
    for other in all.filter(|other| other.upto.keys().eq(first.upto.keys())) {
        sum.upto.iter_mut().zip(other.upto.values()).for_each(|((_, sum), more)| *sum += more);
        sum.sum += other.sum;
        sum.count += other.count;
    }
    let buckets = sum.upto.into_iter().map(|(limit, upto)| (f64::from_bits(limit), whole(upto))).collect();
    Some(Histogram { buckets, sum: sum.sum, count: whole(sum.count) })
}

/// Engine, figure and part of a histogram that a name stands for, whatever stands before the engine.
fn known(name: &str) -> Option<(&'static str, Metric, &'static str)> {
    ENGINES.iter().find_map(|(engine, _)| {
        let begin = name.find(engine)?;
        let is_word = begin == 0 || matches!(name.as_bytes()[begin - 1], b':' | b'_');
        let rest = name[begin + engine.len()..].strip_prefix([':', '_']).filter(|_| is_word)?;
        let rest = rest.strip_suffix("_total").unwrap_or(rest);
        let find = |rest: &str| NAMES.iter().find(|(known, _)| *known == rest).map(|(_, metric)| *metric);
        let is_histogram =
            |metric: &Metric| matches!(metric, Metric::FirstToken | Metric::BetweenTokens | Metric::Whole);
        let of_histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| {
            let metric = find(rest.strip_suffix(part)?).filter(is_histogram)?;
            Some((metric, part))
        });
        // other engines count tokens of prompts that were found in both
        let is_own =
            |metric: &Metric| *engine == "llamacpp" || !matches!(metric, Metric::Prompt | Metric::PromptCached);
        let found = of_histogram.or_else(|| Some((find(rest).filter(|found| !is_histogram(found))?, "")));
        let (metric, part) = found.filter(|(metric, _)| is_own(metric))?;
        Some((*engine, metric, part))
    })
}

/// The engine that a page of metrics comes from, and the model that it names; none of a page of something else.
pub(super) fn origin(text: &str) -> Option<(&'static str, &str)> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(sample);
    let (engine, labels) = lines.find_map(|(name, labels, _)| Some((known(name)?.0, labels)))?;
    let (_, engine) = ENGINES.iter().find(|(known, _)| *known == engine)?;
    Some((engine, label(labels, "model_name").or_else(|| label(labels, "model")).unwrap_or_default()))
}

/// Name, labels and value of a line.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    // OpenMetrics puts an example of a request after the value; not where it is a part of a label
    let example = line.rfind(" # {").filter(|at| line[..*at].matches('"').count().is_multiple_of(2));
    let line = example.map_or(line, |at| &line[..at]);
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

    const BEFORE: &str = include_str!("../../../tests/fixtures/attach/vllm/metrics-before.prom");
    const AFTER: &str = include_str!("../../../tests/fixtures/attach/vllm/metrics-after.prom");

    #[test]
    fn vllm_s_counters_are_read_and_subtracted() {
        let [before, after] = [BEFORE, AFTER].map(parse);
        assert_eq!(before.accepted_per_pos.len(), 4, "k");
        let news = after.since(&before);
        assert_eq!((news.steps, news.drafted, news.accepted, news.generated), (Some(2), Some(8), Some(6), Some(14)));
        assert_eq!(news.accepted_per_pos, [2, 2, 1, 1]);
        assert_eq!(before.since(&after), before, "a server that was started anew counts from 0");
        assert!(before.fell_since(&after) && !after.fell_since(&before));
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

    #[test]
    fn names_are_known_whatever_stands_before_the_engine_and_with_or_without_total() {
        for name in [
            "vllm:spec_decode_num_drafts_total",
            "vllm:spec_decode_num_drafts",
            "ray_vllm:spec_decode_num_drafts_total",
            "ray_vllm_spec_decode_num_drafts_total",
            "team_a_vllm_spec_decode_num_drafts",
            "sglang:spec_verify_calls_total",
        ] {
            assert_eq!(parse(&format!("{name}{{engine=\"0\"}} 4")).steps, Some(4), "{name}");
        }
        for name in ["myvllm:spec_decode_num_drafts", "vllm:spec_decode_num_drafts_created", "spec_decode_num_drafts"] {
            assert_eq!(parse(&format!("{name} 4")).steps, None, "{name}");
        }
    }

    #[test]
    fn examples_of_requests_after_a_value_are_left_out() {
        for line in [
            "vllm:spec_decode_num_drafts_total 4 # {trace_id=\"x\"} 1 1.7e9",
            "vllm:spec_decode_num_drafts_total{engine=\"0\"} 4 1.7e9 # {trace_id=\"x}\"} 1",
            "vllm:spec_decode_num_drafts_total{model=\"a # {b\"} 4",
        ] {
            assert_eq!(parse(line).steps, Some(4), "{line}");
        }
    }

    #[test]
    fn engines_are_added_up_and_a_figure_under_two_names_is_counted_once() {
        let counters = parse(
            "vllm:generation_tokens_total{engine=\"0\"} 10\nvllm:generation_tokens_total{engine=\"1\"} 5\n\
             ray_vllm_generation_tokens{engine=\"0\"} 10\nray_vllm_generation_tokens{engine=\"1\"} 5\n\
             sglang:generation_tokens_total 100\n\
             vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.4\n\
             vllm:prefix_cache_queries_total 40\nvllm:prefix_cache_hits_total 10",
        );
        assert_eq!(counters.generated, Some(115));
        assert!(counters.kv_use.is_some_and(|part| (part - 0.3).abs() < 1e-9));
        assert_eq!((counters.prefix_queries, counters.prefix_hits), (Some(40), Some(10)));
    }

    #[test]
    fn histograms_give_quantiles() {
        let page = |engine: u32, n: u32| {
            let name = "vllm:time_to_first_token_seconds";
            format!(
                "{name}_bucket{{engine=\"{engine}\",le=\"0.1\"}} {n}\n{name}_bucket{{engine=\"{engine}\",le=\"0.5\"}} {}\n\
                 {name}_bucket{{engine=\"{engine}\",le=\"+Inf\"}} {}\n{name}_sum{{engine=\"{engine}\"}} {n}\n\
                 {name}_count{{engine=\"{engine}\"}} {}\n",
                3 * n,
                4 * n,
                4 * n
            )
        };
        let found = parse(&(page(0, 1) + &page(1, 1))).first_token.unwrap();
        assert_eq!((found.count, found.buckets.as_slice()), (8, [(0.1, 2), (0.5, 6)].as_slice()));
        assert_eq!((found.mean(), found.quantile(0.99)), (Some(0.25), None), "beyond the last limit");
        assert!(found.quantile(0.5).is_some_and(|median| (median - 0.3).abs() < 1e-9), "{found:?}");
        let later = parse(&(page(0, 3) + &page(1, 3))).first_token.unwrap();
        assert_eq!((later.since(&found).count, found.since(&later).count), (16, 8));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
