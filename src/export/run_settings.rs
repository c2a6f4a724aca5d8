//! The settings of a run, in words for reports.

use draftscope_protocol::{Header, Lane, Settings};
use draftscope_session::{Session, header_diff};

/// Settings that every report shows.
const ALWAYS_SHOWN: [&str; 5] = ["drafter", "k", "rule", "temperature", "seed"];

/// The settings that differ from the defaults, except those in [`ALWAYS_SHOWN`]; none if there are none.
pub(super) fn changed(header: &Header) -> Option<String> {
    let usual = Header { settings: Settings::default(), ..header.clone() };
    let others = header_diff(&usual, header).into_iter().filter(|(name, ..)| !ALWAYS_SHOWN.contains(&name.as_str()));
    let others: Vec<String> = others.map(|(name, _, value)| format!("{name} {value}")).collect();
    (!others.is_empty()).then(|| others.join(", "))
}

/// The rival's settings: up to four combinations of k, rule and temperature that its rounds used, then its drafter.
pub(super) fn rivals(session: &Session) -> String {
    let rounds = session.turns().iter().flat_map(|turn| &turn.answer(Lane::Rival).rounds);
    let mut parts: Vec<String> = Vec::new();
    for round in rounds {
        let one =
            format!("k = {}, {}, temperature {}", round.draft_len(), round.judged_by(), round.sampling.temperature);
        if parts.len() < 4 && !parts.contains(&one) {
            parts.push(one);
        }
    }
    let rival = session.settings().rival.or_else(|| session.header()?.settings.rival);
    parts.extend(rival.map(|rival| format!("drafts by {}", rival.drafter)));
    parts.join("; ")
}
