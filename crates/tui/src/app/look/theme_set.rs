//! All themes: the bundled ones and the user's, one of them current.
//!
//! Invariant: there is always a current theme; every theme is fitted to the colours of the terminal.

use crate::app::options::TuiOptions;
use crate::look::theme::{BUNDLED, Theme};
use crate::terminal::color_depth::ColorDepth;

/// All themes, and the current one.
pub(crate) struct ThemeSet {
    themes: Vec<Theme>,
    chosen: usize,
}

impl ThemeSet {
    /// All themes, with warnings about the user's and about a name that does not exist.
    pub(crate) fn new(options: &TuiOptions) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let depth = if options.no_color { ColorDepth::Mono } else { options.depth };
        let bundled = BUNDLED.iter().filter_map(|(name, _)| Theme::bundled(name));
        let mut themes: Vec<Theme> = bundled.map(|(theme, _)| theme).collect();
        for (name, text) in &options.themes {
            let (theme, found) = Theme::parse(name, text);
            warnings.extend(found.into_iter().map(|warning| format!("theme {name}: {warning}")));
            themes.retain(|known| known.name != *name);
            themes.push(theme);
        }
        let themes: Vec<Theme> = themes.into_iter().map(|theme| theme.at(depth)).collect();
        let named = options.theme.as_deref().or(options.fitting_theme.as_deref());
        let wanted = if options.no_color { "mono" } else { named.unwrap_or("default") };
        let chosen = themes.iter().position(|theme| theme.name == wanted);
        if chosen.is_none() {
            let names: Vec<_> = themes.iter().map(|theme| theme.name.as_str()).collect();
            warnings.push(format!("there is no theme '{wanted}'; there are: {}", names.join(", ")));
        }
        (Self { themes, chosen: chosen.unwrap_or(0) }, warnings)
    }

    pub(crate) fn theme(&self) -> &Theme {
        &self.themes[self.chosen]
    }

    /// All themes, and the index of the current one.
    pub(crate) fn list(&self) -> (&[Theme], usize) {
        (&self.themes, self.chosen)
    }

    /// Switches to the theme of this index, or to the last one.
    pub(crate) fn choose(&mut self, index: usize) {
        self.chosen = index.min(self.themes.len() - 1);
    }

    /// The next or previous theme, wrapping around.
    pub(crate) fn turn(&mut self, up: bool) {
        let by = if up { 1 } else { self.themes.len() - 1 };
        self.chosen = (self.chosen + by) % self.themes.len();
    }
}
