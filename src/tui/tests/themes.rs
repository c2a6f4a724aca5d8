//! Themes: every cell of every view has the theme's own background, and the list shows what is chosen at once.

use ratatui::style::Color;

use super::*;
use crate::tui::page::Page;
use crate::tui::theme::{BUNDLED, Role, Theme};

#[test]
fn no_cell_falls_back_to_the_terminals_background() {
    let grounds =
        BUNDLED.iter().filter(|(name, _)| Theme::bundled(name).is_some_and(|(t, _)| t[Role::Text].bg.is_some()));
    let names: Vec<&str> = grounds.map(|(name, _)| *name).collect();
    for name in ["light", "gruvbox", "nord", "catppuccin"] {
        assert!(names.contains(&name), "{name} has a background of its own");
    }
    for name in names {
        for page in Page::ALL {
            for keys in ["", "?", ":", "o", "v", "w", "/", "a", "<F5>"] {
                let options = TuiOptions {
                    page: *page,
                    theme: Some(name.to_owned()),
                    depth: ColorDepth::True,
                    ..TuiOptions::default()
                };
                let mut stage = Stage::new(&conversation(), options);
                stage.press("<Esc>").press(keys);
                for (width, height) in [(80, 24), (120, 40)] {
                    let buffer = stage.draw(width, height).backend().buffer().clone();
                    // what a wide character covers is drawn with it
                    let covered = |index: usize| index > 0 && buffer.content()[index - 1].symbol().width() > 1;
                    let cells = buffer.content().iter().enumerate();
                    let bare = cells.filter(|(index, cell)| cell.bg == Color::Reset && !covered(*index)).count();
                    assert_eq!(bare, 0, "{name} {page:?} '{keys}' at {width}:\n{}", stage.screen(width, height));
                }
            }
        }
    }
}

#[test]
fn a_theme_is_on_show_as_soon_as_it_is_chosen_and_leaving_takes_the_one_before() {
    let options = TuiOptions { depth: ColorDepth::True, ..TuiOptions::default() };
    let mut stage = Stage::new(&first_turn(), options).pressed("<Tab>T<Down><Down><Down><Down>");
    assert_eq!(stage.app.theme().name, "gruvbox");
    let screen = stage.screen(80, 24);
    assert!(screen.contains("▸ gruvbox") && screen.contains("catppuccin"), "{screen}");
    insta::assert_snapshot!("picker", screen);
    stage.press("<Esc>");
    assert_eq!((stage.app.theme().name.as_str(), stage.app.overlay.is_none()), ("default", true));
    stage.press("T<Down><Enter>");
    assert_eq!((stage.app.theme().name.as_str(), stage.app.overlay.is_none()), ("light", true));
    stage.shows((80, 24), &["theme = \"light\" in config.toml"]);
}

#[test]
fn a_search_says_which_of_how_many_places_is_selected() {
    let mut stage = Stage::of(&conversation());
    stage.walk((80, 24), &[("<Tab>/sun", "sun▏  1 of 2"), ("<Enter>", "2 of 2"), ("x", "none")]);
}
