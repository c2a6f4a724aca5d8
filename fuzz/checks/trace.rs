//! Takes any bytes as a recording: reads it line by line and ahead, folds it, draws a page, exports it. No control
//! character may reach a cell of the screen, and no text of the recording may become markup of the HTML page.

use clap::ValueEnum;
use draftscope::export::{ExportOptions, Format, export};
use draftscope::session::trace::{Reader, Recording};
use draftscope::session::{Diff, Session, Timeline};
use draftscope::tui::{App, Compared, Page, Recorded, TuiOptions};

use super::{draw_page, folder};

/// Reads, folds, draws and exports a recording.
pub fn check(bytes: &[u8]) {
    let Ok(mut reader) = Reader::of_bytes("fuzz", bytes.to_vec()) else { return };
    let by_line: Vec<_> = reader.by_ref().map_while(Result::ok).collect();
    let mut time = Timeline::new();
    by_line.iter().cloned().for_each(|event| time.apply(event));
    let _ = time.live().end();
    time.go(time.start());
    draw(&time, bytes.len());
    time.follow();
    draw(&time, bytes.len() / 7);

    let Ok(recording) = Recording::of_bytes("fuzz", bytes) else { return };
    let ahead: Vec<_> = recording.events().expect("it was read before").map_while(Result::ok).collect();
    // compared as text, because NaN is not equal to itself
    assert_eq!(format!("{ahead:?}"), format!("{by_line:?}"), "reading ahead gives the same events");
    let formats = Format::value_variants();
    write(&recording, formats[bytes.len() % formats.len()]);

    let session = time.live().clone();
    let _ = Diff::of(&session, &Session::new());
}

/// Draws one of the pages; all of them would take too long.
fn draw(time: &Timeline, which: usize) {
    let page = Page::ALL[which % Page::ALL.len()];
    draw_page(time, App::new(TuiOptions { page, ..TuiOptions::default() }), (100, 30));
    let side = || Recorded { name: "a".to_owned(), session: time.live().clone() };
    let compared = Compared::new(side(), side(), TuiOptions::default());
    assert!(!compared.quits());
}

fn write(recording: &Recording, format: Format) {
    let to = folder().join("export");
    let options = ExportOptions { force: true, size: (60, 16), ..ExportOptions::default() };
    let _ = std::fs::remove_dir_all(&to);
    let _ = std::fs::remove_file(&to);
    if export(recording, format, &to, &options).is_err() {
        assert!(!to.exists(), "a failed export left a file");
        return;
    }
    if format == Format::Html {
        let page = std::fs::read_to_string(&to).expect("it was just written");
        assert_eq!(page.matches("</script>").count(), 2, "the data closed its script element");
    }
}
