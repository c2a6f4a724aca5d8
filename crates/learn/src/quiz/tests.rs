//! The bank against the engine's rules, against a judge who sees the screen alone, and against simple ways to judge.

mod make_bank;

use std::collections::BTreeSet;
use std::path::Path;

use super::ask::category;
use super::belief::Belief;
use super::beliefs::SIMPLE;
use super::beliefs::{beliefs_of, explained};
use super::draw::{ITEMS, draw, score_of};
use super::item::Category;
use super::judge::judge;
use super::*;
use draftscope_protocol::distribution::Distribution;
use draftscope_protocol::random::SeededDraws;
use draftscope_protocol::verify::{Draft, OfRound, RoundCtx, verifier};
use draftscope_protocol::{Outcome, Prediction, TokenId, Verification, VerifyRule};
use draftscope_session::round_at::rounds;
use draftscope_session::{Round, Session};

/// A recorded row as the rules take it.
fn distribution(row: &Prediction) -> Distribution {
    let mut entries: Vec<_> = row.top.iter().map(|c| (c.piece.id, c.prob)).collect();
    entries.sort_by_key(|entry| entry.0);
    Distribution::new(entries, row.best().map_or(TokenId(0), |best| best.piece.id), row.tail)
}

/// The verdict of the engine's rule on recorded rows, with the draws of the run's seed.
fn judged_again(round: &Round) -> Verification {
    let is_greedy = round.sampling.is_greedy();
    let draws = SeededDraws::new(round.sampling.seed);
    let start = round.base_len() as usize + 1;
    let ctx = RoundCtx {
        position: start,
        draft_len: round.drafts.len(),
        greedy: is_greedy,
        fresh: round.shapes_drafts.then_some(OfRound { start, first: 0 }),
        leniency: round.leniency,
        draws: &draws,
    };
    let drafts: Vec<Draft> = round
        .drafts
        .iter()
        .map(|cell| {
            let mut q = distribution(&cell.top);
            if cell.top.top.is_empty() {
                q = Distribution::new(vec![(cell.token.id, cell.q.unwrap())], cell.token.id, 1.0 - cell.q.unwrap());
            }
            let draft = Draft { drawn: !is_greedy, ..Draft::drawn(cell.token.id, q) };
            cell.row.map_or(draft.clone(), |row| draft.at_row(row.into()))
        })
        .collect();
    let rows: Vec<_> = round.rows().iter().map(distribution).collect();
    verifier(round.rule).verify(&ctx, &drafts, &rows)
}

#[test]
fn the_bank_has_enough_of_every_category() {
    let bank = bank();
    assert!(bank.len() >= 60, "{} items", bank.len());
    for wanted in Category::ALL {
        let count = bank.iter().filter(|item| item.category == Some(*wanted)).count();
        assert!(count >= 6, "{}: {count}", wanted.name());
    }
    for (index, item) in bank.iter().enumerate() {
        assert_eq!(category(&item.round), item.category, "{}", item.id);
        assert!(!bank[..index].iter().any(|other| other.asks_same(item)), "{} is there twice", item.id);
    }
    let drawn = |item: &&Item| item.category == Some(Category::BelowRatio);
    assert!(bank.iter().filter(drawn).all(|item| item.round.drafts.iter().all(|draft| draft.q.is_some())));
}

#[test]
fn the_engines_rule_judges_every_item_as_recorded() {
    for item in bank() {
        let (again, recorded) = (judged_again(&item.round), item.round.verdict.clone().unwrap());
        let outcomes = |verdict: &Verification| verdict.judgements.iter().map(|j| j.outcome).collect::<Vec<_>>();
        assert_eq!(outcomes(&again), outcomes(&recorded), "{}", item.id);
        assert_eq!((again.next, again.next_kind), (recorded.next, recorded.next_kind), "{}", item.id);
        assert_eq!((again.next_u, &again.departures), (recorded.next_u, &recorded.departures), "{}", item.id);
        let draws = |verdict: &Verification| verdict.judgements.iter().map(|j| j.u).collect::<Vec<_>>();
        assert_eq!(draws(&again), draws(&recorded), "{}", item.id);
        let ps = |verdict: &Verification| verdict.judgements.iter().map(|j| j.p).collect::<Vec<_>>();
        assert_eq!(ps(&again), ps(&recorded), "{}", item.id);
    }
}

#[test]
fn what_is_shown_decides_every_item() {
    for item in bank() {
        let shown = Shown::of(&item);
        assert_eq!(judge(&shown), Some(shown.right.clone()), "{}: {shown:#?}", item.id);
        let names: BTreeSet<_> = shown.choices.iter().map(ToString::to_string).collect();
        assert!(names.len() == shown.choices.len() && names.len() >= 3, "{}: {names:?}", item.id);
    }
}

#[test]
fn what_is_shown_is_no_hint() {
    // the right choice is at any place, and draws are shown whether they were made or not
    let bank = bank();
    let at = |place| bank.iter().filter(|item| Shown::of(item).right.committed == place).count();
    assert!((0..3).all(|place| at(place) * 6 > bank.len()), "{:?}", [0, 1, 2, 3].map(at));
    for item in bank.iter().filter(|item| !item.round.sampling.is_greedy()) {
        assert!(Shown::of(item).drafts.iter().all(|draft| draft.u.is_some()), "{}", item.id);
    }
}

#[test]
fn simple_ways_to_judge_score_at_most_half() {
    let bank = bank();
    for way in SIMPLE {
        let is_right = |shown: &Shown| way.answer(shown).as_ref() == Some(&shown.right);
        let right = score_of(&bank, is_right);
        println!("{}: {right} of {}", way.name(), bank.len());
        // in most categories the target's best token decides; draw() chooses the others more often
        assert!(*way == Belief::Best || right * 2 <= bank.len(), "{}: {right} of {}", way.name(), bank.len());
        let quizzes = 300;
        let scores: Vec<_> = (0..quizzes).map(|seed| score_of(&draw(&bank, &[], seed), is_right)).collect();
        let mean = scores.iter().sum::<usize>() as f64 / quizzes as f64;
        println!("  in quizzes: mean {mean:.2}, most {:?}", scores.iter().max());
        let is_half = |score: &usize| *score <= ITEMS / 2;
        assert!(mean <= 5.0 && scores.iter().all(is_half), "{}: {mean:.2}, {scores:?}", way.name());
    }
    let perfect = |shown: &Shown| judge(shown).as_ref() == Some(&shown.right);
    assert!((0..100).all(|seed| score_of(&draw(&bank, &[], seed), perfect) == ITEMS));
}

#[test]
fn whoever_judges_a_rule_of_confidence_as_exact_is_wrong() {
    let bank = bank();
    let of_rule = bank.iter().filter(|item| item.round.rule == VerifyRule::Confidence);
    let mut of_confidence = of_rule.clone().map(Shown::of);
    assert!(of_rule.count() >= 6, "half of the items of rules that are not lossless");
    assert!(of_confidence.all(|shown| Belief::AsExact.answer(&shown) != Some(shown.right.clone())));
}

#[test]
fn random_drafts_are_not_asked() {
    assert!(of_recording("lessons/random").is_empty());
}

#[test]
fn a_quiz_has_ten_different_items_of_every_category() {
    let bank = bank();
    for seed in 0..100 {
        let items = draw(&bank, &[], seed);
        assert_eq!(items.len(), ITEMS);
        assert_eq!(items, draw(&bank, &[], seed), "the same seed gives the same quiz");
        for wanted in Category::ALL {
            assert!(items.iter().any(|item| item.category == Some(*wanted)), "{seed}: {}", wanted.name());
        }
        for (index, item) in items.iter().enumerate() {
            assert!(!items[..index].iter().any(|other| other.asks_same(item)));
            let gives_away = items[..index].iter().find(|other| other.continues_same(item));
            assert!(gives_away.is_none(), "{seed}: {} and {}", item.id, gives_away.unwrap().id);
        }
    }
    assert_ne!(draw(&bank, &[], 1), draw(&bank, &[], 2));
}

/// The rounds of a bundled recording that can be asked.
fn of_recording(name: &str) -> Vec<Item> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("assets/traces")
        .join(format!("{name}.dscope.jsonl.zst"));
    let mut session = Session::new();
    let recording = draftscope_session::trace::Recording::open(&path).unwrap();
    recording.reader().unwrap().for_each(|event| session.apply(&event.unwrap()));
    rounds(&session).filter_map(|at| Item::of_round(&session, at)).collect()
}

#[test]
fn rounds_of_recordings_are_asked_too() {
    for name in ["code", "story", "chat", "lessons/round"] {
        let own = of_recording(name);
        assert!(own.len() >= 5, "{name}: {}", own.len());
        for item in &own {
            assert_eq!(judge(&Shown::of(item)), Some(Shown::of(item).right), "{name}: {}", item.id);
        }
        let items = draw(&bank(), &own, 3);
        let from_session = items.iter().filter(|item| own.contains(item)).count();
        assert!((1..=3).contains(&from_session), "{name}: {from_session}");
        assert_eq!(items.len(), ITEMS);
        for way in SIMPLE {
            let is_right = |shown: &Shown| way.answer(shown).as_ref() == Some(&shown.right);
            let scores: Vec<_> = (0..60).map(|seed| score_of(&draw(&bank(), &own, seed), is_right)).collect();
            let mean = scores.iter().sum::<usize>() as f64 / scores.len() as f64;
            let most = scores.iter().max().copied().unwrap_or(0);
            println!("{name}, {}: mean {mean:.2}, most {most}", way.name());
            assert!(mean <= 5.0 && most <= ITEMS / 2 + 1, "{name}, {}: {mean:.2}, {scores:?}", way.name());
        }
    }
}

/// Answers an item as given.
fn answered(run: &mut Run, answer: &Answer) {
    for (place, index) in run.order.clone().into_iter().enumerate() {
        run.go_to(place);
        run.mark(answer.verdicts[index]);
    }
    run.go_to(run.order.len() + answer.committed);
    run.submit().unwrap();
}

#[test]
fn an_expert_has_ten_of_ten_and_believers_are_recognised() {
    let bank = bank();
    let mut run = Run::of(draw(&bank, &[], 5));
    assert_eq!(run.submit(), Err("mark every draft first: accepted, rejected or not reached"));
    let mut finished = None;
    while let Some(item) = run.item().cloned() {
        answered(&mut run, &judge(&Shown::of(&item)).unwrap());
        assert!(run.answered().unwrap().is_right);
        assert!(run.submit().is_ok(), "a second answer does not count");
        finished = run.go_on();
    }
    let finished = finished.unwrap();
    assert_eq!((finished.score, finished.of, run.given.len()), (10, 10, 10));
    assert!(finished.beliefs.is_empty());

    for way in SIMPLE {
        let (mut run, mut last) = (Run::of(bank.clone()), None);
        while let Some(item) = run.item().cloned() {
            let answer = way.answer(&Shown::of(&item)).unwrap();
            let count = Shown::of(&item).choices.len();
            answered(&mut run, &Answer { committed: answer.committed.min(count - 1), ..answer });
            last = run.go_on();
        }
        let named = last.unwrap().beliefs().first().map(|(belief, count)| (*belief, *count));
        let wrong = bank.len() - run.score();
        println!("{}: {} of {}; named {named:?} of {wrong} wrong", way.name(), run.score(), bank.len());
        assert!(run.given.iter().all(|given| given.is_right || !given.beliefs.is_empty()), "{}", way.name());
        let (belief, count) = named.unwrap();
        assert!(belief == *way && count >= wrong * 3 / 4, "{}: {named:?} of {wrong}", way.name());
    }
}

#[test]
fn judging_after_a_rejection_is_named() {
    let bank = bank();
    let mut of_first = bank.iter().filter(|item| item.category == Some(Category::First)).map(Shown::of);
    let nothing = |shown: &Shown| shown.choices.iter().position(|choice| choice.kind == "nothing");
    let shown = of_first.find(|shown| nothing(shown).is_some()).unwrap();
    let mut answer = shown.right.clone();
    *answer.verdicts.last_mut().unwrap() = Outcome::Accepted;
    assert_eq!(beliefs_of(&shown, &answer), [Belief::AfterRejection]);
    let answer = Answer { committed: nothing(&shown).unwrap(), ..shown.right.clone() };
    assert_eq!(beliefs_of(&shown, &answer), [Belief::NothingAdded]);
    assert_eq!(beliefs_of(&shown, &shown.right), []);
    let both = [vec![Belief::Rank, Belief::All], vec![Belief::All], Vec::new(), vec![Belief::KeptDraft]];
    assert_eq!(explained(&both), [Belief::All, Belief::All, Belief::KeptDraft]);
}

#[test]
fn statements_have_reasons_sources_and_lessons() {
    let all = statements();
    assert_eq!(all.len(), 10);
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let lessons = crate::lesson::bundled();
    let exists = |name: &str, step: usize| {
        let entry = lessons.iter().find(|entry| entry.name == name);
        entry.is_some_and(|entry| (1..=entry.lesson.step.len()).contains(&step))
    };
    let said = [
        "Tokens within the top few of the big model are accepted.",
        "A probability over 90 % is used without the main model.",
        "If the main model generates two tokens itself, how can it be wrong about its own predictions?",
        "Checking is much faster than generating.",
        "The second token is made without knowing the first.",
        "Does it need a separate KV cache?",
        "Typically 30 %, 250 % is ridiculous.",
        "Only on capable GPUs for predictable output.",
        "If compute is short the speedup is negative.",
        "It doesn't help training.",
    ];
    assert_eq!(all.iter().map(|statement| statement.text.as_str()).collect::<Vec<_>>(), said, "as people said them");
    let guide = std::fs::read_to_string(root.join("docs/teaching.md")).unwrap();
    for statement in &all {
        let number = 1 + lessons.iter().position(|entry| entry.name == statement.lesson).unwrap();
        let row = format!("| \"{}\" | {}", statement.text, statement.answer.name());
        let row = guide.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("no row {row}"));
        assert!(row.contains(&format!(" {number}.{}", statement.step)), "{row}");
        assert!(!statement.text.ends_with('?') || !statement.judge.is_empty(), "{}: what is judged", statement.id);
        assert!(statement.why.split_whitespace().count() <= 60, "{}", statement.id);
        assert!(exists(&statement.lesson, statement.step), "{}", statement.id);
        assert!(!statement.source.is_empty(), "{}", statement.id);
        for part in statement.source.split([';', ',']).map(str::trim) {
            let is_path = part.starts_with("src/") || part.starts_with("docs/");
            assert!(!is_path || root.join(part).exists(), "{}: {part}", statement.id);
        }
    }
    for truth in Truth::ALL {
        let count = all.iter().filter(|statement| statement.answer == *truth).count();
        assert!((2..=4).contains(&count), "{count} are '{}': one verdict for all must not score half", truth.name());
    }
    for belief in Belief::ALL {
        assert!(exists(belief.lesson().0, belief.lesson().1), "{}", belief.name());
        assert_eq!(Belief::named(belief.name()), Some(*belief));
    }
}

#[test]
fn kept_results_are_compared_and_damage_counts_as_nothing() {
    let mut results = Results::default();
    assert_eq!((results.compared(), certificate(&results)), ([None, None], None));
    results.before = vec![Truth::True; 10];
    results.after = statements().iter().map(|statement| statement.answer).collect();
    let beliefs = ["rank", "all", "rank", "of a newer version"].map(str::to_owned).to_vec();
    results.add(Finished { score: 6, of: 10, seconds: 425, beliefs });
    let read = Results::read(&results.text());
    assert_eq!(read, results);
    assert_eq!(read.compared()[1], Some(10));
    assert!(read.compared()[0] < Some(5));
    assert_eq!(read.quiz[0].beliefs(), [(Belief::Rank, 2), (Belief::All, 1)]);
    let right_before = statements().iter().filter(|statement| statement.answer == Truth::True).count();
    let [learned, wrong] = read.changed().unwrap();
    assert_eq!((learned.len(), wrong.len()), (10 - right_before, 0));
    assert_eq!(changes(&read).len(), 1);
    let worse = Results { after: read.before.clone(), before: read.after.clone(), ..Results::default() };
    assert_eq!(worse.changed().unwrap().map(|list| list.len()), [0, 10 - right_before]);
    assert!(changes(&worse)[0].starts_with("Still wrong (8): “Tokens within the top few"), "{:?}", changes(&worse));
    let text = certificate(&read).unwrap();
    assert!(
        text.contains("6 of 10") && text.contains("7:05") && text.contains("after the lessons: 10 of 10"),
        "{text}"
    );
    for damaged in ["", "before = 3", "before = [\"true\"]", "quiz = [{score = -1}]", "\u{0}"] {
        assert_eq!(Results::read(damaged), Results::default(), "{damaged}");
    }
    (0..100).for_each(|_| results.add(Finished { score: 1, of: 10, seconds: 1, beliefs: Vec::new() }));
    assert_eq!(results.quiz.len(), 50);
}

#[test]
fn a_sheet_has_ten_items_and_their_answers_apart() {
    let Sheet { json, html, markdown } = sheet(7);
    assert_eq!(sheet(7).json, json);
    assert_ne!(sheet(8).json, json);
    let read: serde_json::Value = serde_json::from_str(&json).unwrap();
    let items = read["items"].as_array().unwrap();
    assert_eq!((items.len(), read["statements"].as_array().unwrap().len()), (10, 10));
    for item in items {
        let (drafts, choices) = (item["drafts"].as_array().unwrap(), item["choices"].as_array().unwrap());
        let verdicts = item["answer"]["verdicts"].as_array().unwrap();
        assert_eq!(verdicts.len(), drafts.len());
        assert!((item["answer"]["committed"].as_u64().unwrap() as usize) < choices.len());
        assert!(!item["reason"].as_str().unwrap().is_empty());
    }
    for text in [&html, &markdown] {
        assert_eq!(text.matches("The target adds:").count(), 10);
        let reasons = items.iter().map(|item| item["reason"].as_str().unwrap());
        assert!(reasons.clone().all(|reason| !text.contains(reason)), "no reasons are printed");
    }
    assert!(!html.contains("http") && html.ends_with("</html>\n"));
}
