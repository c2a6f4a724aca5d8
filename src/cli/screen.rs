//! Options of the screen, and the commands around the program itself.

use clap::{Args, Subcommand};

use draftscope_tui::{Marks, Page};

/// How any screen looks.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Screen")]
pub struct LookArgs {
    /// Colours: default, light, high-contrast, colorblind, gruvbox, nord, catppuccin, ansi16, mono, or a theme of yours
    /// [default: by the terminal's background]
    #[arg(long, value_name = "NAME", env = "DRAFTSCOPE_THEME")]
    pub theme: Option<String>,
    /// Marks at fates in the answer: where colours are missing, always or never
    #[arg(long, value_enum, default_value_t = Marks::Auto)]
    pub marks: Marks,
    /// Draw without box, block and braille glyphs, as in a locale without UTF-8
    #[arg(long)]
    pub ascii: bool,
    /// Leave the mouse to the terminal
    #[arg(long)]
    pub no_mouse: bool,
}

/// How the screen of a run looks.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Screen")]
pub struct ScreenArgs {
    /// First view
    #[arg(long, value_enum, default_value_t = Page::Chat)]
    pub view: Page,
    /// Start with plain and speculative answers side by side
    #[arg(long)]
    pub split: bool,
    #[command(flatten)]
    pub look: LookArgs,
}

/// `config …`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigAction {
    /// Print where the configuration file is read from
    Path,
    /// Write a configuration file that lists every setting with its default, commented out
    Init,
    /// Print the value of every setting and its source: default, file or environment
    Show,
}
