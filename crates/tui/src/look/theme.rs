//! Colours and text styles, by meaning.
//!
//! Views ask for a [`Role`], never for a colour. Invariant: roles are a closed set, so a typo in Rust does not compile
//! and one in a theme file is a warning that names the nearest key; loading never fails, it yields a usable theme and
//! warnings. A style is looked up at `a.b.c`, then `a.b`, then `a`, then `text`. `fate.rs` keeps fates readable without
//! colour.

use std::collections::BTreeMap;
use std::ops::Index;

use ratatui::style::{Color, Modifier, Style};
use toml::{Table, Value};

use crate::terminal::color_depth::ColorDepth;

macro_rules! roles {
    ($($(#[$doc:meta])* $role:ident = $key:literal),+ $(,)?) => {
        /// A meaning that has a style.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Role { $($(#[$doc])* $role),+ }
        impl Role {
            /// Every role.
            pub const ALL: &'static [Role] = &[$(Role::$role),+];
            /// Its key in theme files.
            #[must_use]
            pub const fn key(self) -> &'static str { match self { $(Role::$role => $key),+ } }
        }
    };
}

roles! {
    /// Ordinary text, and the fallback of every other role.
    Text = "text",
    /// Captions, hints, less important text.
    TextDim = "text.dim",
    /// Numbers that matter.
    TextStrong = "text.strong",
    /// The one number that a page is about; over the role of its finding.
    Hero = "text.hero",
    /// Headings of an answer as plain text.
    TextHeading = "text.heading",
    /// Code of an answer as plain text.
    TextCode = "text.code",
    /// What the user typed.
    User = "user",
    /// First token of an answer.
    TokenPrefill = "token.prefill",
    /// Token of a round without drafts.
    TokenPlain = "token.plain",
    /// Copied from the turn that a branch leaves.
    TokenKept = "token.kept",
    /// Accepted draft.
    TokenAccepted = "token.accepted",
    /// Accepted draft that the target would not have picked.
    TokenDeparted = "token.accepted.departed",
    /// Accepted draft that the grammar forced.
    TokenForced = "token.accepted.forced",
    /// The target's token instead of a rejected draft.
    TokenRecovered = "token.recovered",
    /// The target's token after all drafts.
    TokenBonus = "token.bonus",
    /// Rejected draft.
    TokenRejected = "token.rejected",
    /// Number of discarded drafts that the text leaves out.
    TokenCounted = "token.rejected.counted",
    /// Token that the grammar forbade before it became a draft.
    TokenRefused = "token.rejected.refused",
    /// Draft after a rejected one.
    TokenNotReached = "token.not_reached",
    /// Draft that is not judged yet.
    TokenPending = "token.pending",
    /// Where the user looks: a round's tokens, a column.
    Selected = "selected",
    /// Frame of a panel.
    PanelBorder = "panel.border",
    /// Frame of the panel that takes the keys.
    PanelFocused = "panel.border.focused",
    /// Title of a panel.
    PanelTitle = "panel.title",
    /// The status line.
    Status = "status",
    /// The engine is working.
    StatusActive = "status.active",
    /// The engine is paused.
    StatusPaused = "status.paused",
    /// The speculative lane in plots.
    PlotSpeculative = "plot.speculative",
    /// Slower than plain decoding, in plots.
    PlotLoss = "plot.loss",
    /// What is predicted, in plots.
    PlotPredicted = "plot.predicted",
    /// The plain lane in plots.
    PlotPlain = "plot.plain",
    /// Axes and captions of plots.
    PlotAxis = "plot.axis",
    /// Accepted part of a bar.
    PlotBar = "plot.bar",
    /// Rest of a bar.
    PlotRest = "plot.rest",
    /// Time of drafting.
    PhaseDraft = "phase.draft",
    /// Time of the target's pass.
    PhaseVerify = "phase.verify",
    /// Time of anything else in a round.
    PhaseRest = "phase.rest",
    /// A key in hints and help.
    Key = "key",
    /// Speculation pays off.
    Good = "verdict.good",
    /// Speculation costs more than it brings.
    Bad = "verdict.bad",
    /// A word on a ground of its own: a figure that cannot be trusted.
    Badge = "badge",
    /// Something is wrong, and the user should know.
    Warning = "warning",
    /// The program cannot go on.
    Error = "error",
}

/// One style per role.
#[derive(Clone, Debug, PartialEq)]
pub struct Theme {
    /// Its name.
    pub name: String,
    styles: Vec<Style>,
}

impl Index<Role> for Theme {
    type Output = Style;
    fn index(&self, role: Role) -> &Style {
        &self.styles[role as usize]
    }
}

/// The themes in the binary, in the order in which the key cycles them.
pub(crate) const BUNDLED: &[(&str, &str)] = &[
    ("default", include_str!("../../themes/default.toml")),
    ("light", include_str!("../../themes/light.toml")),
    ("high-contrast", include_str!("../../themes/high-contrast.toml")),
    ("colorblind", include_str!("../../themes/colorblind.toml")),
    ("gruvbox", include_str!("../../themes/gruvbox.toml")),
    ("nord", include_str!("../../themes/nord.toml")),
    ("catppuccin", include_str!("../../themes/catppuccin.toml")),
    ("ansi16", include_str!("../../themes/ansi16.toml")),
    ("mono", include_str!("../../themes/mono.toml")),
];

impl Theme {
    /// Names of the bundled themes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUNDLED.iter().map(|(name, _)| *name)
    }

    /// A bundled theme with the warnings of its file; `None` if there is no such theme.
    #[must_use]
    pub fn bundled(name: &str) -> Option<(Self, Vec<String>)> {
        let (name, text) = BUNDLED.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(name, text))
    }

    /// A theme from the text of a file, with warnings about invalid lines.
    #[must_use]
    pub fn parse(name: &str, text: &str) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let mut seen = vec![name.to_owned()];
        let sheet = Sheet::load(text, &mut seen, &mut warnings);
        let mut resolved = BTreeMap::new();
        for (key, value) in &sheet.style {
            if !is_key(key) {
                let near = nearest(key, Role::ALL.iter().map(|role| role.key()));
                warnings.push(format!("unknown style '{key}'; nearest is '{near}'"));
                continue;
            }
            resolved.insert(key.as_str(), sheet.style_of(key, value, &mut warnings));
        }
        let styles = Role::ALL.iter().map(|role| look_up(&resolved, role.key()));
        let theme = Self { name: name.to_owned(), styles: styles.collect() };
        (theme, warnings)
    }

    /// Whether kept tokens of different fates look different: by colour, or by a modifier of the letters.
    pub(crate) fn tells_fates(&self) -> bool {
        let kept = [Role::TokenAccepted, Role::TokenRecovered, Role::TokenBonus];
        let looks = kept.map(|role| (self[role].fg, self[role].add_modifier));
        (1..kept.len()).all(|at| !looks[..at].contains(&looks[at]))
    }

    /// The same theme for a terminal with fewer colours.
    #[must_use]
    pub fn at(mut self, depth: ColorDepth) -> Self {
        for style in &mut self.styles {
            style.fg = style.fg.and_then(|color| depth.fit(color));
            style.bg = style.bg.and_then(|color| depth.fit(color));
        }
        self
    }
}

/// A theme file merged with its ancestors.
#[derive(Default)]
struct Sheet {
    palette: BTreeMap<String, String>,
    style: BTreeMap<String, Value>,
}

impl Sheet {
    fn load(text: &str, seen: &mut Vec<String>, warnings: &mut Vec<String>) -> Self {
        let table = text.parse::<Table>().unwrap_or_else(|error| {
            warnings.push(format!("not TOML: {}", error.message()));
            Table::new()
        });
        let mut sheet = match table.get("inherits").and_then(Value::as_str) {
            Some(parent) => Self::parent(parent, seen, warnings),
            None => Self::default(),
        };
        for (key, value) in table {
            match (key.as_str(), value) {
                ("inherits" | "description", Value::String(_)) => {}
                ("palette", Value::Table(palette)) => sheet.add_palette(palette, warnings),
                ("style", Value::Table(style)) => sheet.style.extend(style),
                _ => {
                    let near = nearest(&key, ["inherits", "description", "palette", "style"].into_iter());
                    warnings.push(format!("unknown entry '{key}'; nearest is '{near}'"));
                }
            }
        }
        sheet
    }

    fn parent(name: &str, seen: &mut Vec<String>, warnings: &mut Vec<String>) -> Self {
        if seen.iter().any(|known| known == name) {
            warnings.push(format!("theme '{name}' inherits itself"));
            return Self::default();
        }
        seen.push(name.to_owned());
        match BUNDLED.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::load(text, seen, warnings),
            None => {
                let near = nearest(name, BUNDLED.iter().map(|(known, _)| *known));
                warnings.push(format!("no theme '{name}' to inherit; nearest is '{near}'"));
                Self::default()
            }
        }
    }

    fn add_palette(&mut self, palette: Table, warnings: &mut Vec<String>) {
        for (name, value) in palette {
            match value {
                Value::String(color) => {
                    self.palette.insert(name, color);
                }
                _ => warnings.push(format!("palette entry '{name}' is not a string")),
            }
        }
    }

    fn style_of(&self, key: &str, value: &Value, warnings: &mut Vec<String>) -> Style {
        match value {
            Value::String(color) => self.color(color, warnings).map_or(Style::new(), |c| Style::new().fg(c)),
            Value::Table(table) => self.style_of_table(key, table, warnings),
            _ => {
                warnings.push(format!("style '{key}' is neither a colour nor a table"));
                Style::new()
            }
        }
    }

    fn style_of_table(&self, key: &str, table: &Table, warnings: &mut Vec<String>) -> Style {
        let mut style = Style::new();
        for (field, value) in table {
            match (field.as_str(), value) {
                ("fg", Value::String(color)) => style.fg = self.color(color, warnings),
                ("bg", Value::String(color)) => style.bg = self.color(color, warnings),
                ("modifiers", Value::Array(list)) => {
                    for name in list.iter().filter_map(Value::as_str) {
                        style = style.add_modifier(modifier(name, warnings));
                    }
                }
                _ => {
                    let near = nearest(field, ["fg", "bg", "modifiers"].into_iter());
                    warnings.push(format!("style '{key}' has an unknown field '{field}'; nearest is '{near}'"));
                }
            }
        }
        style
    }

    fn color(&self, name: &str, warnings: &mut Vec<String>) -> Option<Color> {
        let text = self.palette.get(name).map_or(name, String::as_str);
        if let Ok(color) = text.parse() {
            return Some(color);
        }
        let near = nearest(name, self.palette.keys().map(String::as_str));
        warnings.push(format!("unknown colour '{name}'; nearest in the palette is '{near}'"));
        None
    }
}

/// Whether a key is a role or a prefix of one.
fn is_key(key: &str) -> bool {
    Role::ALL.iter().any(|role| {
        let rest = role.key().strip_prefix(key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

fn look_up(styles: &BTreeMap<&str, Style>, key: &str) -> Style {
    let mut key = key;
    loop {
        if let Some(style) = styles.get(key) {
            return *style;
        }
        match key.rfind('.') {
            Some(dot) => key = &key[..dot],
            None => return styles.get("text").copied().unwrap_or_default(),
        }
    }
}

fn modifier(name: &str, warnings: &mut Vec<String>) -> Modifier {
    const KNOWN: &[(&str, Modifier)] = &[
        ("bold", Modifier::BOLD),
        ("dim", Modifier::DIM),
        ("italic", Modifier::ITALIC),
        ("underlined", Modifier::UNDERLINED),
        ("reversed", Modifier::REVERSED),
        ("crossed_out", Modifier::CROSSED_OUT),
    ];
    if let Some((_, modifier)) = KNOWN.iter().find(|(known, _)| *known == name) {
        return *modifier;
    }
    let near = nearest(name, KNOWN.iter().map(|(known, _)| *known));
    warnings.push(format!("unknown modifier '{name}'; nearest is '{near}'"));
    Modifier::empty()
}

/// The candidate with the fewest edits to `name`.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> &'a str {
    candidates.min_by_key(|known| edits(name, known)).unwrap_or("none")
}

/// Levenshtein distance in characters.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let cost = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_theme_loads_with_zero_warnings() {
        for (name, _) in BUNDLED {
            let (theme, warnings) = Theme::bundled(name).unwrap();
            assert_eq!(warnings, Vec::<String>::new(), "{name}");
            assert_eq!(theme.name, *name);
        }
    }

    #[test]
    fn keys_fall_back_along_dots_and_children_override_parents() {
        let text = "inherits = \"mono\"\n[palette]\nyes = \"#102030\"\n[style]\ntoken = \"yes\"\n\"token.bonus\" = { bg = \"red\" }\n\"token.accepted\" = \"blue\"";
        let (theme, warnings) = Theme::parse("x", text);
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(theme[Role::TokenAccepted].fg, Some(Color::Blue));
        assert_eq!(theme[Role::TokenBonus].bg, Some(Color::Red));
        let (alone, _) = Theme::parse("x", "[style]\ntoken = \"#102030\"");
        assert_eq!(alone[Role::TokenNotReached].fg, Some(Color::Rgb(16, 32, 48)));
        assert_eq!(alone[Role::Error], Style::new());
    }

    #[test]
    fn what_is_not_understood_is_a_warning_with_the_nearest_key() {
        let text = "[palette]\ngreen2 = \"#00ff00\"\n[style]\n\"token.acepted\" = \"green2\"\ntext = { fg = \"gren2\", modifiers = [\"bolt\"], fgg = \"red\" }\n[sytle]\n";
        let (_, warnings) = Theme::parse("x", text);
        assert_eq!(
            warnings,
            [
                "unknown entry 'sytle'; nearest is 'style'",
                "unknown colour 'gren2'; nearest in the palette is 'green2'",
                "style 'text' has an unknown field 'fgg'; nearest is 'fg'",
                "unknown modifier 'bolt'; nearest is 'bold'",
                "unknown style 'token.acepted'; nearest is 'token.accepted'",
            ]
        );
        let (_, warnings) = Theme::parse("default", "inherits = \"default\"");
        assert_eq!(warnings, ["theme 'default' inherits itself"]);
        assert_eq!(Theme::parse("x", "= broken").1.len(), 1);
    }

    #[test]
    fn the_monochrome_theme_has_no_colour() {
        let (theme, _) = Theme::bundled("mono").unwrap();
        for role in Role::ALL {
            assert_eq!((theme[*role].fg, theme[*role].bg), (None, None), "{}", role.key());
        }
    }

    #[test]
    fn every_theme_tells_fates_at_every_depth_that_it_is_made_for() {
        let tells = |name: &str, depth| Theme::bundled(name).unwrap().0.at(depth).tells_fates();
        for (name, _) in BUNDLED {
            assert!(tells(name, ColorDepth::True) && tells(name, ColorDepth::Indexed), "{name}");
        }
        assert!(tells("default", ColorDepth::Ansi) && tells("ansi16", ColorDepth::Ansi));
        assert!(!tells("default", ColorDepth::Mono) && tells("mono", ColorDepth::Mono));
    }

    #[test]
    fn true_colours_become_indexed_ones() {
        let (theme, _) = Theme::bundled("default").unwrap();
        let theme = theme.at(ColorDepth::Indexed);
        let rgb = |style: &Style| matches!(style.fg, Some(Color::Rgb(..))) || matches!(style.bg, Some(Color::Rgb(..)));
        assert!(!theme.styles.iter().any(rgb));
    }
}
