//! A server's stream, joined with what the engine's plugin reports.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::AttachConfig;
use crate::names::Names;
use crate::server::{Line, Reader};
use crate::step::Part;
use draftscope_protocol::{CountedRound, Header, VerifyRule};

use super::feed::Feed;

/// The plugin of a run's engine, shared by its answers.
pub(crate) struct Plugin {
    feed: Mutex<Feed>,
    /// Whether the server reports drafts with each round, so that nothing needs to be counted at the end.
    is_live: bool,
}

impl Plugin {
    /// Reads the run's plugin, if there is one.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(crate) fn start(config: &AttachConfig, header: &Header) -> Result<Option<Arc<Self>>, String> {
        let Some(address) = &config.socket else { return Ok(None) };
        let feed = Feed::start(address.clone(), config.round_wait)
            .map_err(|error| format!("cannot read {address}: {error}"))?;
        let is_live = header.engine.as_ref().is_none_or(|engine| engine.draft_counts.is_live());
        Ok(Some(Arc::new(Self { feed: Mutex::new(feed), is_live })))
    }

    /// An answer begins: what was reported before belongs to other requests.
    pub(crate) fn begin(&self) {
        self.lock().begin();
    }

    /// The rule by which the engine judges drafts, once the plugin named it.
    pub(crate) fn rule(&self) -> Option<VerifyRule> {
        self.lock().rule()
    }

    fn lock(&self) -> MutexGuard<'_, Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a stream and gives its parts the detail that the plugin has.
pub(crate) struct Joined {
    stream: Box<dyn Reader>,
    plugin: Arc<Plugin>,
    /// What the rounds so far drafted; none once one of them had no detail.
    counted: Option<Vec<CountedRound>>,
}

impl Joined {
    pub(crate) fn new(stream: Box<dyn Reader>, plugin: &Arc<Plugin>) -> Self {
        Self { stream, plugin: Arc::clone(plugin), counted: Some(Vec::new()) }
    }

    fn join(&mut self, parts: Vec<Part>, is_over: bool) -> Vec<Part> {
        let plugin = Arc::clone(&self.plugin);
        let mut feed = plugin.lock();
        let mut joined: Vec<Part> = feed.notices().into_iter().map(Part::Notice).collect();
        for part in parts {
            match part {
                Part::First { token, row, cached, took_us } => {
                    let row = feed.first(&token).or(row);
                    joined.push(Part::First { token, row, cached, took_us });
                }
                Part::Step(step) => {
                    for step in feed.take(step) {
                        self.count(&step);
                        joined.push(Part::Step(step));
                    }
                }
                Part::Recounted(rounds) => joined.push(Part::Recounted(self.recounted().unwrap_or(rounds))),
                Part::End(reason) => {
                    joined.extend(self.recounted().map(Part::Recounted));
                    joined.push(Part::End(reason));
                }
                part => joined.push(part),
            }
        }
        if is_over && !joined.iter().any(|part| matches!(part, Part::End(_))) {
            joined.extend(self.recounted().map(Part::Recounted));
        }
        joined
    }

    fn count(&mut self, step: &crate::step::Step) {
        match (&mut self.counted, &step.detail) {
            (Some(counted), Some(_)) => counted.push(CountedRound {
                drafted: u8::try_from(step.drafted).unwrap_or(u8::MAX),
                accepted: u8::try_from(step.accepted).unwrap_or(u8::MAX),
                committed: u16::try_from(step.tokens.len()).unwrap_or(u16::MAX),
                merged: false,
            }),
            _ => self.counted = None,
        }
    }

    /// The counts of the whole answer, once, if the plugin reported every round and the server does not.
    fn recounted(&mut self) -> Option<Vec<CountedRound>> {
        self.counted.take().filter(|counted| !self.plugin.is_live && !counted.is_empty())
    }
}

impl Reader for Joined {
    fn line(&mut self, line: &str, at_us: u64, names: &mut Names) -> Line {
        match self.stream.line(line, at_us, names) {
            Line::Parts(parts) => Line::Parts(self.join(parts, false)),
            line => line,
        }
    }

    fn close(&mut self) -> Vec<Part> {
        let parts = self.stream.close();
        self.join(parts, true)
    }
}
