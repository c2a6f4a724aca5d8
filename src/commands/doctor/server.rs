//! A server that was named: whether it can be attached to.

use std::time::Instant;

use draftscope::cli::DoctorArgs;
use draftscope::protocol::Header;
use serde_json::json;

use super::check::Check;

/// Asks the server what it is.
pub(super) fn check(url: &str, args: &DoctorArgs) -> Check {
    let started = Instant::now();
    match super::super::attach::introduce(url, &args.access) {
        Ok(header) => found(&header, started.elapsed().as_millis()),
        Err(why) => Check::fails("server", format!("{why:#}"), "docs/attach.md says what a server needs"),
    }
}

fn found(header: &Header, milliseconds: u128) -> Check {
    let engine = header.engine.as_ref();
    let name = engine.map_or("a server", |engine| engine.name.as_str());
    let version = engine.map(|engine| engine.version.as_str()).filter(|version| !version.is_empty());
    let named = version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"));
    let drafter = header.drafter.as_ref().map(|drafter| drafter.kind);
    let drafts = drafter.map_or_else(|| "no drafter known".to_owned(), |kind| format!("drafter {kind}"));
    let text = format!("{named} runs {}, {drafts}; it answered in {milliseconds} ms", header.model.name);
    Check::ok("server", text).with(json!({
        "name": name,
        "version": version,
        "model": header.model.name,
        "drafter": drafter,
        "milliseconds": milliseconds,
    }))
}
