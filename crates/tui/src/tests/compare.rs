//! Both answers of a turn, token beside token: what finishes plain decoding, where tokens stand, what is said of them.

use ratatui::buffer::Buffer;

use super::*;
use crate::app::place::page::Page;

/// The first turn, whose plain lane wrote all of the run's own answer, some of it otherwise.
fn finished(change: impl Fn(usize, &str) -> String) -> Script {
    let mut script = first_turn();
    let turn = script_turn(&script);
    let written = turn.answer(Lane::Plain).tokens.len();
    script.push(Lane::Plain, EventKind::LaneContinued { turn: 1 });
    for (index, token) in turn.answer(Lane::Speculative).tokens.iter().enumerate().skip(written) {
        script.plain(&change(index, &String::from_utf8_lossy(token.piece.text_bytes())));
    }
    script.finish(Lane::Plain, StopReason::MaxTokens);
    script
}

fn script_turn(script: &Script) -> draftscope_session::Turn {
    draftscope_session::fixture::fold(&script.events).turns()[0].clone()
}

fn on(page: Page) -> TuiOptions {
    TuiOptions { page, ..TuiOptions::default() }
}

fn finish(stage: &mut Stage) -> Vec<Command> {
    update::finish_plain(&mut stage.app, &stage.time)
}

/// Every place on the screen where a word begins.
fn places(buffer: &Buffer, word: &str) -> Vec<(u16, u16)> {
    let row = |y: u16| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<Vec<_>>();
    let letters: Vec<String> = word.chars().map(|c| c.to_string()).collect();
    (0..buffer.area.height)
        .flat_map(|y| {
            let row = row(y);
            let at = |x: &usize| row[*x..].iter().zip(&letters).all(|(a, b)| a == b) && row.len() - x >= letters.len();
            (0..row.len()).filter(at).map(|x| (x as u16, y)).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn both_answers_on_show_let_plain_decoding_finish_once() {
    for keys in ["5", "c"] {
        let mut stage = Stage::of(&first_turn()).pressed("<Tab>");
        assert_eq!(finish(&mut stage), [], "the answer alone is on show");
        stage.press(keys);
        let sent = finish(&mut stage);
        let [Command::FinishPlain { plain }] = &sent[..] else { panic!("{keys}: {sent:?}") };
        assert_eq!(Some(plain), stage.time.live().turns()[0].unfinished_plain().as_ref());
        assert_eq!(finish(&mut stage), [], "{keys}: it was asked");
    }
}

#[test]
fn nothing_is_asked_of_an_engine_at_work_of_a_recording_or_where_plain_is_whole() {
    let mut busy = Stage::new(&conversation(), on(Page::Compare));
    assert_eq!(finish(&mut busy), []);
    let mut whole = Stage::new(&finished(|_, text| text.to_owned()), on(Page::Compare));
    assert_eq!(finish(&mut whole), []);
    let mut script = first_turn();
    script.head(|head| head.capabilities = Capabilities::default());
    let mut recording = Stage::new(&script, on(Page::Compare));
    assert_eq!(finish(&mut recording), []);
    let mut past = Stage::new(&first_turn(), on(Page::Compare)).pressed("<");
    assert_eq!(finish(&mut past), []);
}

#[test]
fn a_prompt_does_not_wait_for_a_plain_lane_that_goes_on() {
    let mut script = first_turn();
    script.push(Lane::Plain, EventKind::LaneContinued { turn: 1 });
    let stage = Stage::of(&script).pressed("hi<Enter>");
    assert!(matches!(stage.sent[..], [Command::Generate { .. }]), "{:?}", stage.sent);
}

#[test]
fn a_token_stands_on_the_same_row_and_column_in_both_panes() {
    let mut stage = Stage::new(&finished(|_, text| text.to_owned()), on(Page::Compare));
    for (width, height) in [(80, 24), (100, 30), (140, 42)] {
        let buffer = stage.draw(width, height).backend().buffer().clone();
        let mut apart = Vec::new();
        for word in ["because", "phenomenon", "called", "Rayleigh", "sunlight"] {
            let [left, right] = places(&buffer, word)[..] else { panic!("{word} stands in each pane, once") };
            assert_eq!(left.1, right.1, "{word} at {width}");
            apart.push(right.0 - left.0);
        }
        assert!(apart.windows(2).all(|pair| pair[0] == pair[1]), "{apart:?} at {width}");
    }
}

#[test]
fn one_selection_marks_both_panes() {
    let mut stage = Stage::new(&finished(|_, text| text.to_owned()), on(Page::Compare));
    let clear = stage.draw(100, 30).backend().buffer().clone();
    let [left, right] = places(&clear, "Rayleigh")[..] else { panic!("{clear:?}") };
    let target =
        stage.app.place.hit_map.hits.iter().rev().find(|hit| hit.area.contains(left.into())).map(|hit| hit.target);
    let Some(hit_map::Target::Token { turn: 0, round, column }) = target else { panic!("{target:?}") };
    update::click(&mut stage.app, &mut stage.time, left.0, left.1);
    let answer = stage.time.live().turns()[0].answer(Lane::Speculative).clone();
    let chosen = stage.app.place.selected.and_then(|at| at.round).map(|at| answer.rounds[at].number());
    assert_eq!((chosen, stage.app.place.cell), (Some(round), Some(column)));
    let marked = stage.draw(100, 30).backend().buffer().clone();
    for place in [left, right] {
        assert_ne!(clear[place].style(), marked[place].style(), "{place:?}");
    }
    assert_eq!(marked[left].bg, marked[right].bg);
    assert!(marked[left].modifier.contains(Modifier::REVERSED) && marked[right].modifier.contains(Modifier::REVERSED));
}

#[test]
fn the_verdict_is_in_words() {
    let all = script_turn(&first_turn()).answer(Lane::Speculative).tokens.len();
    for (width, height) in [(80, 24), (100, 30), (140, 42)] {
        let mut same = Stage::new(&finished(|_, text| text.to_owned()), on(Page::Compare));
        let screen = same.screen(width, height);
        assert!(screen.contains(&format!("identical: all {all} tokens")), "{screen}");
        let other = |index: usize, text: &str| if index == all - 2 { " cat".to_owned() } else { text.to_owned() };
        let mut differs = Stage::new(&finished(other), on(Page::Compare));
        let screen = differs.screen(width, height).replace("│\n│", " ");
        let words: Vec<&str> = screen.split_whitespace().collect();
        let says = format!("identical for {} tokens, then plain wrote '·cat'", all - 2);
        assert!(words.join(" ").contains(&says), "{says}: {screen}");
        assert!(words.join(" ").contains("no near tie: the two best tokens were 0.680 apart"), "{screen}");
    }
    let mut part = Stage::new(&first_turn(), on(Page::Compare));
    part.shows((100, 30), &["identical so far: "]);
}

#[test]
fn the_bars_say_who_is_ahead_by_how_many_tokens() {
    let script = finished(|_, text| text.to_owned());
    let turn = script_turn(&script);
    let race = turn.race(&[Lane::Plain, Lane::Speculative]).unwrap();
    let (own, plain) = (race.written[Lane::Speculative.index()], race.written[Lane::Plain.index()]);
    let screen = Stage::new(&script, on(Page::Compare)).screen(100, 30);
    let says = match own > plain {
        true => format!("speculative is {} tokens ahead of plain", own - plain),
        false => format!("plain is {} tokens ahead of speculative", plain - own),
    };
    assert!(own != plain && screen.contains(&says), "{says}: {screen}");
}

#[test]
fn three_lanes_stand_beside_each_other_where_there_is_room() {
    let mut stage = Stage::new(&race::race(), on(Page::Compare));
    for (width, lanes) in [(100, 2), (140, 3)] {
        let buffer = stage.draw(width, 42).backend().buffer().clone();
        assert_eq!(places(&buffer, "phenomenon").len(), lanes, "{}", stage.screen(width, 42));
    }
}
