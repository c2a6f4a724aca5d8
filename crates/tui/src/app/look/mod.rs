//! Themes and keymap: chosen by the user, or read again when the files change.

pub(crate) mod theme_set;

use crate::app::look::theme_set::ThemeSet;
use crate::app::options::{TuiOptions, UserLook};
use crate::input::keymap::Keymap;
use crate::look::theme::Theme;

use super::App;

impl App {
    /// Takes what the user's files say now. Without a theme of theirs the current one stays.
    pub(crate) fn reload(&mut self, look: UserLook) {
        let current = self.theme().name.clone();
        let theme = look.theme.clone().unwrap_or_else(|| current.clone());
        let files_changed = look.themes != self.options.themes || look.keymap != self.options.keymap;
        if !files_changed && current == theme && look.warnings.is_empty() {
            return; // another setting, which counts from the next start on, or a theme that was kept from here
        }
        (self.options.themes, self.options.keymap) = (look.themes, look.keymap);
        let (keymap, mut warnings) = Keymap::with_user(self.options.keymap.as_deref());
        self.keymap = keymap;
        self.keymap.is_ascii = self.options.ascii;
        let (themes, found) = ThemeSet::new(&TuiOptions { theme: Some(theme), ..self.options.clone() });
        self.themes = themes;
        self.dress_editor();
        warnings.splice(0..0, look.warnings);
        warnings.extend(found);
        let read = "the changed configuration was read";
        self.toast = Some(if warnings.is_empty() { read.to_owned() } else { warnings.join(" · ") });
    }

    /// Takes the theme that fits the terminal's background by now, unless another one was chosen.
    pub(crate) fn fit_background(&mut self, fitting: &str) {
        let follows = self.options.fitting_theme.as_deref() == Some(&*self.theme().name);
        let found = self.themes().0.iter().position(|theme| theme.name == fitting).filter(|_| follows);
        if let Some(index) = found {
            self.options.fitting_theme = Some(fitting.to_owned());
            self.choose_theme(index);
        }
    }

    /// The theme in use.
    #[must_use]
    pub fn theme(&self) -> &Theme {
        self.themes.theme()
    }

    pub(crate) fn turn_theme(&mut self, up: bool) {
        self.themes.turn(up);
        self.dress_editor();
    }

    /// All themes, and the index of the current one.
    pub(crate) fn themes(&self) -> (&[Theme], usize) {
        self.themes.list()
    }

    /// Switches to the theme of this index, or to the last one.
    pub(crate) fn choose_theme(&mut self, index: usize) {
        self.themes.choose(index);
        self.dress_editor();
    }

    pub(super) fn dress_editor(&mut self) {
        self.talk.editor.dress(self.themes.theme());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> App {
        App::new(TuiOptions { theme: Some("nord".to_owned()), ..TuiOptions::default() })
    }

    #[test]
    fn the_theme_follows_the_background_until_the_user_chooses_one() {
        let fitting = Some("default".to_owned());
        let mut app = App::new(TuiOptions { fitting_theme: fitting, ..TuiOptions::default() });
        for fitting in ["light", "default", "light"] {
            app.fit_background(fitting);
            assert_eq!(app.theme().name, fitting);
        }
        app.turn_theme(true);
        let chosen = app.theme().name.clone();
        app.fit_background("default");
        assert_eq!(app.theme().name, chosen);
        let mut named = self::app();
        named.fit_background("light");
        assert_eq!(named.theme().name, "nord", "an option chose it");
    }

    #[test]
    fn a_theme_in_the_files_replaces_the_current_one() {
        let mut app = app();
        app.reload(UserLook { theme: Some("gruvbox".to_owned()), ..UserLook::default() });
        assert_eq!(app.theme().name, "gruvbox");
        assert_eq!(app.toast.as_deref(), Some("the changed configuration was read"));
    }

    #[test]
    fn a_theme_of_the_user_is_drawn_as_its_file_is_now() {
        let mut app = app();
        let mine = |text: &str| vec![("mine".to_owned(), text.to_owned())];
        app.reload(UserLook {
            theme: Some("mine".to_owned()),
            themes: mine("inherits = \"nord\""),
            ..UserLook::default()
        });
        let before = app.theme().clone();
        app.reload(UserLook { themes: mine("inherits = \"light\""), ..UserLook::default() });
        assert_eq!(app.theme().name, "mine", "without a theme in the file the current one stays");
        assert_ne!(*app.theme(), before);
    }

    #[test]
    fn another_setting_or_a_theme_that_was_kept_says_nothing() {
        let mut app = app();
        app.toast = Some("kept".to_owned());
        app.reload(UserLook { theme: Some("nord".to_owned()), ..UserLook::default() });
        assert_eq!(app.toast.as_deref(), Some("kept"));
    }

    #[test]
    fn what_is_wrong_is_named_and_the_rest_is_used() {
        let mut app = app();
        let look = UserLook {
            theme: Some("none-such".to_owned()),
            warnings: vec!["config: w".to_owned()],
            ..UserLook::default()
        };
        app.reload(look);
        let toast = app.toast.clone().unwrap_or_default();
        assert!(toast.starts_with("config: w · ") && toast.contains("none-such"), "{toast}");
    }
}
