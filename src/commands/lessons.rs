//! Recordings of the real engine that lessons play, and the one that the empty screen offers.

use std::rc::Rc;

use draftscope::trace::Recording;
use draftscope::tui::Recordings;

macro_rules! lesson {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../assets/traces/lessons/", $name, ".dscope.jsonl.zst")))
    };
}

/// The runs of the lessons and one of the demo, recorded by `cargo test --release --test recordings -- --ignored`.
const LESSONS: &[(&str, &[u8])] = &[
    lesson!("positions"),
    lesson!("cost"),
    lesson!("round"),
    lesson!("lossless"),
    lesson!("rules"),
    lesson!("sampling"),
    lesson!("losing"),
    lesson!("quiz"),
    ("code", include_bytes!("../../assets/traces/code.dscope.jsonl.zst")),
];

/// What lessons play when there is no engine.
pub(crate) fn lessons() -> Recordings {
    Recordings(Rc::new(|name: &str| {
        let known = LESSONS.iter().find(|(known, _)| *known == name);
        let (name, bytes) = known.ok_or_else(|| format!("there is no recording '{name}'"))?;
        let read = || Recording::of_bytes(name, *bytes)?.reader()?.collect::<Result<Vec<_>, _>>();
        read().map_err(|error| error.to_string())
    }))
}
