//! Takes any text as the user's files: `config.toml`, `keymap.toml` and a theme, separated by lines of `---`. Reads them,
//! draws a frame with them, and shows the help, which lists the keys.

use clap::CommandFactory;
use draftscope::cli::Cli;
use draftscope::host::config::{UserFiles, with_defaults};
use draftscope::session::Timeline;
use draftscope::tui::{Action, App, TuiOptions, update};

use super::{draw_page, sentence, write};

/// Reads the files as a start does.
pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split("\n---\n");
    let config = write("user/config.toml", parts.next().unwrap_or_default().as_bytes());
    write("user/keymap.toml", parts.next().unwrap_or_default().as_bytes());
    write("user/themes/own.toml", parts.next().unwrap_or_default().as_bytes());
    let files = UserFiles::read(&config);
    files.warnings.iter().for_each(|warning| sentence(warning));
    let (_, warnings) = with_defaults(Cli::command(), &files.entries);
    warnings.iter().for_each(|warning| sentence(warning));
    let options = TuiOptions {
        theme: Some("own".to_owned()),
        themes: files.themes,
        keymap: files.keymap,
        warnings: files.warnings,
        ..TuiOptions::default()
    };
    let mut time = Timeline::new();
    let mut app = App::new(options);
    update(&mut app, &mut time, Action::Help);
    draw_page(&time, app, (90, 24));
}
