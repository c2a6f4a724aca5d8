//! Any bytes as a recording: read, folded and drawn. Nothing may panic, and no control character may
//! reach a cell of the screen. A good corpus to begin with are the traces of `tests/fixtures/traces`.
#![no_main]

use draftscope::session::Timeline;
use draftscope::trace::Reader;
use draftscope::tui::{App, TuiOptions, view};
use libfuzzer_sys::fuzz_target;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fuzz_target!(|bytes: &[u8]| {
    let Ok(reader) = Reader::of_bytes("fuzz", bytes.to_vec()) else { return };
    let mut time = Timeline::new();
    for event in reader.map_while(Result::ok) {
        time.apply(event);
    }
    let _ = time.live().end();
    let app = App::new(TuiOptions::default());
    let mut terminal = Terminal::new(TestBackend::new(100, 30)).expect("a buffer needs no terminal");
    let draw = terminal.draw(|frame| {
        view(&time, &app, app.theme(), frame);
    });
    draw.expect("a buffer takes every frame");
    let cells = terminal.backend().buffer().content();
    assert!(cells.iter().all(|cell| !cell.symbol().contains(char::is_control)));
});
