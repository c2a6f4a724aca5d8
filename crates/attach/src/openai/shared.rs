//! What the readers of answers share with the server: its counters before an answer, and what they rose by.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::dialect::Dialect;
use super::recount::Totals;
use crate::metrics;
use draftscope_http::Client;
use draftscope_protocol::Counters;

/// What the readers of answers learn and need of the server.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) quick: Option<Client>,
    pub(super) dialect: Dialect,
    pub(super) known: Arc<Mutex<Known>>,
}

/// What a server counted while it wrote an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// It publishes no counters.
    Nothing,
    /// Sums of this answer alone.
    Own(Totals),
    /// Other requests are among them: they rose by so many tokens.
    Others(u64),
}

/// How often counters are read after an answer until they hold its last tokens, and the time between two readings.
const MAX_READS: u32 = 4;
const BETWEEN_READS: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Known {
    /// Counters before the answer under way.
    before: Option<Counters>,
    has_request_metrics: bool,
}

impl Shared {
    /// Of a stream that comes from no server.
    pub(super) fn offline(dialect: Dialect) -> Self {
        Self { quick: None, dialect, known: Arc::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server reports figures of each request, so that its counters are not needed.
    pub(super) fn has_request_metrics(&self) {
        self.known().has_request_metrics = true;
    }

    pub(super) fn counters(&self) -> Option<Counters> {
        self.quick.as_ref()?.get("/metrics").ok().map(|text| metrics::parse(&text))
    }

    /// Reads the counters before an answer.
    pub(super) fn begin(&self) {
        if self.dialect == Dialect::Vllm && !self.known().has_request_metrics {
            let before = self.counters();
            self.known().before = before;
        }
    }

    /// What the server counted since an answer of so many tokens began.
    pub(super) fn counted_since(&self, own: u64) -> Since {
        let Some(before) = self.known().before.take() else { return Since::Nothing };
        for attempt in 1.. {
            let Some(after) = self.counters() else { break };
            // where tokens are not published; the gauge may be late
            let is_alone = |counters: &Counters, most: u64| counters.running.is_none_or(|running| running <= most);
            let news = after.since(&before);
            match news.generated {
                // the counters are written a moment after the last chunk was sent
                Some(generated) if generated < own && attempt < MAX_READS => {
                    std::thread::sleep(BETWEEN_READS);
                    continue;
                }
                Some(generated) if generated != own => return Since::Others(generated),
                None if !is_alone(&before, 0) || !is_alone(&after, 1) => return Since::Nothing,
                _ => {}
            }
            let longest = Some(news.accepted_per_pos.len() as u64).filter(|longest| *longest > 0);
            let all = news.steps.zip(news.drafted).zip(news.accepted);
            let totals = all.map(|((steps, drafted), accepted)| Totals { steps, drafted, accepted, longest });
            return totals.map_or(Since::Nothing, Since::Own);
        }
        Since::Nothing
    }

    /// What the user can do for counts.
    pub(super) fn how_to_count(&self) -> &'static str {
        match self.dialect {
            Dialect::Sglang => {
                "SGLang did not report how much it drafted: this needs a version with return_spec_tokens_details"
            }
            _ => {
                "the server did not report how much it drafted: start vLLM with --enable-per-request-metrics and \
                 --per-request-spec-decode-metrics detailed"
            }
        }
    }
}
