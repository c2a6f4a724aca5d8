//! Themes: every cell of every view has the theme's own background, and the list shows what is chosen at once.

use ratatui::style::{Color, Style};

use super::*;
use crate::app::Ask;
use crate::app::place::page::Page;
use crate::look::theme::{BUNDLED, Role, Theme};

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
    assert_eq!((stage.app.theme().name.as_str(), stage.app.place.overlay.is_none()), ("default", true));
    stage.press("T<Down><Enter>");
    assert_eq!((stage.app.theme().name.as_str(), stage.app.place.overlay.is_none()), ("light", true));
    assert_eq!(stage.app.requests.asks, [Ask::KeepTheme("light".to_owned())], "for later starts");
}

#[test]
fn a_search_says_which_of_how_many_places_is_selected() {
    let mut stage = Stage::of(&conversation());
    stage.walk((80, 24), &[("<Tab>/sun", "sun▏  1 of 2"), ("<Enter>", "2 of 2"), ("x", "none")]);
}

/// Red, green and blue from 0 to 1, linear in light.
type Light = [f64; 3];

fn light(color: Color) -> Light {
    let Color::Rgb(r, g, b) = color else { panic!("{color} is no colour of this theme's own") };
    [r, g, b]
        .map(|v| f64::from(v) / 255.0)
        .map(|v| if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) })
}

fn dot(a: Light, b: Light) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Relative luminance (WCAG 2.2).
fn luminance(color: Color) -> f64 {
    dot(light(color), [0.2126, 0.7152, 0.0722])
}

/// Contrast of two colours, 1 to 21 (WCAG 2.2).
fn contrast(a: Color, b: Color) -> f64 {
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    a.max(b) / a.min(b)
}

/// Usual vision, then without one kind of cones: Machado et al. 2009, severity 1.
const VISIONS: [(&str, [Light; 3]); 4] = [
    ("usual", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    ("protan", [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    ("deutan", [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    ("tritan", [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
];

/// CIELAB under D65 of a colour as seen.
fn lab(color: Color, vision: &[Light; 3]) -> Light {
    let seen = vision.map(|row| dot(row, light(color)).clamp(0.0, 1.0));
    let f = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
    let x = f(dot(seen, [0.4124, 0.3576, 0.1805]) / 0.95047);
    let y = f(dot(seen, [0.2126, 0.7152, 0.0722]));
    let z = f(dot(seen, [0.0193, 0.1192, 0.9505]) / 1.08883);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// CIELAB distance of two colours as seen.
fn distance(a: Color, b: Color, vision: &[Light; 3]) -> f64 {
    let (a, b) = (lab(a, vision), lab(b, vision));
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// What is meant to be dim: lines, times, what is predicted, drafts that nothing was said of.
const DIM: [Role; 8] = [
    Role::TokenNotReached,
    Role::PanelBorder,
    Role::PlotAxis,
    Role::PlotRest,
    Role::PlotPredicted,
    Role::PhaseDraft,
    Role::PhaseVerify,
    Role::PhaseRest,
];

/// What no selected cell contains, or what has a ground of its own.
const NEVER_SELECTED: [Role; 7] = [
    Role::PanelBorder,
    Role::PlotAxis,
    Role::PlotRest,
    Role::PlotPredicted,
    Role::TokenPending,
    Role::TokenCounted,
    Role::Badge,
];

/// The themes with colours of their own: 16 colours are the terminal's.
fn own_colours() -> impl Iterator<Item = Theme> {
    let all = BUNDLED.iter().filter_map(|(name, _)| Theme::bundled(name)).map(|(theme, _)| theme);
    all.filter(|theme| matches!(theme[Role::Text].bg, Some(Color::Rgb(..))))
}

#[test]
fn every_role_of_every_theme_can_be_read() {
    let (mut themes, mut weak) = (0, Vec::new());
    for theme in own_colours() {
        themes += 1;
        let ground = |style: Style| style.bg.or(theme[Role::Text].bg).unwrap();
        for role in Role::ALL.iter().filter(|role| theme[**role].fg.is_some()) {
            let (style, least) = (theme[*role], if DIM.contains(role) { 3.0 } else { 4.5 });
            assert!(!style.add_modifier.contains(Modifier::DIM), "{} {} is dimmed on top", theme.name, role.key());
            let mut grounds = vec![ground(style)];
            if !NEVER_SELECTED.contains(role) {
                grounds.push(ground(theme[Role::Selected]));
            }
            for ground in grounds {
                let found = contrast(style.fg.unwrap(), ground);
                if found < least {
                    weak.push(format!("{} {} on {ground}: {found:.2}", theme.name, role.key()));
                }
            }
        }
    }
    assert!(weak.is_empty(), "{weak:#?}");
    assert_eq!(themes, 7);
}

#[test]
fn kept_and_discarded_tokens_differ_for_every_colour_vision() {
    let kept = [Role::TokenAccepted, Role::TokenBonus, Role::TokenRecovered];
    let discarded = [Role::TokenRejected, Role::TokenNotReached];
    for theme in own_colours() {
        let color = |role: Role| theme[role].fg.or(theme[Role::Text].fg).unwrap();
        // themes after a palette of others are closer to it than to this
        let least = if ["default", "light", "high-contrast", "colorblind"].contains(&theme.name.as_str()) {
            18.0
        } else {
            10.0
        };
        for (vision, matrix) in &VISIONS {
            for (a, b) in kept.iter().flat_map(|a| discarded.map(|b| (*a, b))) {
                let found = distance(color(a), color(b), matrix);
                assert!(found >= least, "{} {} {} {vision}: {found:.0}", theme.name, a.key(), b.key());
            }
            for other in [Role::TokenBonus, Role::TokenRecovered, Role::TokenRejected, Role::TokenNotReached] {
                let found = distance(color(Role::TokenAccepted), color(other), matrix);
                assert!(found >= 10.0, "{} accepted {} {vision}: {found:.0}", theme.name, other.key());
            }
        }
        for role in discarded {
            assert!(theme[role].add_modifier.contains(Modifier::CROSSED_OUT), "{}: by shape, too", theme.name);
        }
    }
}

#[test]
fn times_share_no_colour_with_fates() {
    let fates =
        [Role::TokenAccepted, Role::TokenBonus, Role::TokenRecovered, Role::TokenRejected, Role::TokenNotReached];
    for theme in own_colours() {
        let color = |role: Role| theme[role].fg.or(theme[Role::Text].fg).unwrap();
        for phase in [Role::PhaseDraft, Role::PhaseVerify, Role::PhaseRest] {
            for fate in fates {
                let found = distance(color(phase), color(fate), &VISIONS[0].1);
                assert!(found >= 10.0, "{} {} {}: {found:.0}", theme.name, phase.key(), fate.key());
            }
        }
    }
}

#[test]
fn what_is_kept_is_never_a_warning() {
    for (name, _) in BUNDLED.iter().filter(|(name, _)| *name != "mono") {
        let (theme, _) = Theme::bundled(name).unwrap();
        for role in [Role::TokenAccepted, Role::TokenBonus, Role::TokenRecovered, Role::TokenDeparted] {
            assert_ne!(theme[role].fg, theme[Role::Warning].fg, "{name} {}", role.key());
        }
        assert_eq!(theme[Role::TokenRecovered].add_modifier, Modifier::empty(), "{name}: calm");
        assert!(theme[Role::TokenAccepted].add_modifier.contains(Modifier::BOLD), "{name}: the strongest");
    }
}
