//! Servers that are watched: screens and keys.

use super::*;
use crate::protocol::ServerSample;
use crate::session::fleet_tests::sample;

fn watched() -> FleetView {
    let mut view = FleetView::new(3, TuiOptions::default());
    for second in 0..40 {
        view.take(sample(0, second));
        let mut busy = sample(1, second);
        if let Some(counters) = &mut busy.counters {
            counters.generated = counters.generated.map(|tokens| tokens + second * second);
            counters.accepted = counters.accepted.map(|accepted| accepted - 10 * second);
        }
        (busy.engine, busy.model) = ("vLLM".to_owned(), "Qwen3-8B\u{1b}[31m".to_owned());
        busy.slots.clear();
        view.take(busy);
        view.take(ServerSample {
            counters: None,
            problem: Some("no answer from 10.0.0.2:8080: Connection refused".to_owned()),
            slots: Vec::new(),
            ..sample(2, second)
        });
    }
    view
}

fn screen(view: &FleetView, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| drop(crate::tui::view::fleet(view, frame))).unwrap();
    let buffer = terminal.backend().buffer();
    assert!(buffer.content.iter().all(|cell| !cell.symbol().contains(char::is_control)));
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect::<Vec<_>>().join("\n")
}

fn press(view: &mut FleetView, key: &str) {
    view.press(Chord::parse(key).unwrap().event());
}

#[test]
fn servers_are_rows_and_the_chosen_one_is_shown_in_detail() {
    let mut view = watched();
    for (width, height) in [(140, 42), (100, 30), (80, 24)] {
        insta::assert_snapshot!(format!("fleet_{width}_{height}"), screen(&view, width, height));
    }
    press(&mut view, "j");
    let second = screen(&view, 100, 30);
    assert!(second.contains("▸ 10.0.0.1:8080") && !second.contains("Slots"), "{second}");
    press(&mut view, "G");
    press(&mut view, "j");
    assert!(screen(&view, 100, 30).contains("▸ 10.0.0.2:8080"));
    press(&mut view, "k");
    press(&mut view, "<Home>");
    assert_eq!(view.chosen, 0);
    press(&mut view, "q");
    assert!(view.quits());
}

#[test]
fn the_help_has_the_keys_of_this_view_and_what_its_columns_are() {
    let mut view = watched();
    press(&mut view, "?");
    for (width, height) in [(140, 42), (80, 24)] {
        insta::assert_snapshot!(format!("fleet_help_{width}_{height}"), screen(&view, width, height));
    }
    press(&mut view, "j");
    assert_eq!(view.chosen, 0, "keys are the help's");
    press(&mut view, "/");
    "waiting".chars().for_each(|c| press(&mut view, &c.to_string()));
    let found = screen(&view, 100, 30);
    assert!(found.contains("and those that wait") && !found.contains("the next server"), "{found}");
    press(&mut view, "<Esc>");
    press(&mut view, "<Esc>");
    press(&mut view, "j");
    assert_eq!(view.chosen, 1);
    press(&mut view, "?");
    press(&mut view, "q");
    assert!(!view.quits(), "q closes the help first");
    press(&mut view, "q");
    assert!(view.quits());
}

#[test]
fn before_the_first_look_and_without_counters_nothing_is_made_up() {
    let mut view = FleetView::new(2, TuiOptions::default());
    assert!(screen(&view, 80, 24).contains("asking"));
    view.take(ServerSample { counters: Some(Default::default()), slots: Vec::new(), ..sample(0, 0) });
    let text = screen(&view, 80, 24);
    assert!(text.contains('–') && text.contains("one look a second"), "{text}");
    for (width, height) in [(1, 1), (60, 16), (61, 17), (300, 90)] {
        screen(&view, width, height);
    }
}
