//! Makes the bank: `cargo test --release -p draftscope-learn make_bank -- --ignored` runs the default model with the
//! bundled draft module and writes `assets/quiz/bank.toml`. Nothing in it is made up: an item is a round as it happened,
//! with its rows cut to the candidates that are shown or judged.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::super::draw::score_of;
use super::super::item::{Category, Item};
use super::{Belief, SIMPLE, Shown};
use draftscope_engine::EngineConfig;
use draftscope_model::options::{LoadOptions, ModuleFile};
use draftscope_protocol::{
    Baseline, DrafterKind, Drafting, Leniency, Message, NextKind, Piece, Prediction, Prompt, Sampling, Settings,
    Speaker, VerifyRule,
};
use draftscope_session::Round;
use draftscope_session::drive::{Driver, Outcome as Answered};
use draftscope_session::round_at::rounds;

const PROMPTS: [&str; 10] = [
    "What is a good way to learn to swim?",
    "Explain how a bicycle stays upright.",
    "Write a short story about a lighthouse keeper.",
    "Name three planets and say one thing about each.",
    "What should I cook with rice and beans?",
    "Why is the sky blue?",
    "Write a letter to a friend who moved away.",
    "How does a microwave oven heat food?",
    "Give me tips for a job interview.",
    "Tell me about the history of the bicycle.",
];

/// Items of each category.
const WANTED: usize = 9;

/// Items of one category from one run.
const FROM_RUN: usize = 2;

fn assets() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("assets")
}

fn recipe() -> LoadOptions {
    let read = |file: &str| std::fs::read(assets().join("mtp/smollm2-135m").join(file)).unwrap().into();
    let module = ModuleFile {
        name: "smollm2-135m-mtp-9 (fp8)".into(),
        sha256: None,
        weights: read("mtp.fp8.safetensors"),
        config: read("config.json"),
        required: true,
    };
    LoadOptions::on_cpu(draftscope_store::resolve(None).unwrap(), Some(module))
}

/// The settings of the runs, by name.
fn settings() -> Vec<(&'static str, Settings)> {
    let (drafter, baseline) = (DrafterKind::Mtp, Baseline::Off);
    let usual = Settings { draft_len: 3, drafter, max_tokens: 90, baseline, ..Settings::default() };
    let greedy = |rule, leniency| Settings { rule, leniency, ..usual };
    let drawn = |seed| Settings {
        rule: VerifyRule::Rejection,
        sampling: Sampling { temperature: 0.8, top_k: 3, seed, ..Sampling::default() },
        ..usual
    };
    let tree = Settings { drafting: Drafting { tree: Some(6), ..Drafting::default() }, ..usual };
    let sure = |confidence| Leniency { confidence, ..Leniency::default() };
    vec![
        ("exact", usual),
        ("tree", tree),
        ("rejection", drawn(1)),
        ("rejection-2", drawn(2)),
        ("top-k", greedy(VerifyRule::TopK, Leniency::default())),
        ("confidence", greedy(VerifyRule::Confidence, Leniency::default())),
        ("confidence-0.3", greedy(VerifyRule::Confidence, sure(0.3))),
        ("confidence-0.4", greedy(VerifyRule::Confidence, sure(0.4))),
        ("confidence-0.5", greedy(VerifyRule::Confidence, sure(0.5))),
        ("confidence-0.9", greedy(VerifyRule::Confidence, sure(0.9))),
        ("threshold", greedy(VerifyRule::Threshold, Leniency::default())),
    ]
}

/// Every round of a run that can be asked and fits the smallest screen.
fn asked(name: &str, settings: Settings) -> Vec<Item> {
    let mut driver =
        Driver::new(draftscope_engine::spawn(EngineConfig { recipe: recipe(), settings, grammar: None }).unwrap());
    let mut items = Vec::new();
    for (number, prompt) in PROMPTS.iter().enumerate() {
        let message = Message { role: Speaker::User, content: (*prompt).to_owned() };
        assert_eq!(driver.answer(Prompt::Chat(vec![message])), Answered::Answered);
        let session = driver.session();
        let turn = session.turns().len() - 1;
        for at in rounds(session).filter(|at| at.turn == turn) {
            let Some(mut item) = Item::of_round(session, at) else { continue };
            item.id = format!("{name} {} {}", number + 1, item.round.number());
            items.extend(Some(item).filter(|item| {
                item.category.is_some() && item.context.len() > 30 && is_clear(item) && asks_more(item)
            }));
        }
    }
    assert!(driver.finish().is_empty());
    items
}

fn is_plain(piece: &Piece) -> bool {
    let text = piece.lossy();
    !piece.special && !text.trim().is_empty() && text.chars().all(|c| c.is_ascii_graphic() || c == ' ')
}

/// Whether the rule confidence decides otherwise than `exact` does.
fn asks_more(item: &Item) -> bool {
    let shown = Shown::of(item);
    item.round.rule != VerifyRule::Confidence || Belief::AsExact.answer(&shown) != Some(shown.right.clone())
}

/// Whether every token can be read, and a draft has its usual length.
fn is_clear(item: &Item) -> bool {
    let round = &item.round;
    let best = round.rows().iter().flat_map(|row| row.top.iter().take(3)).map(|candidate| &candidate.piece);
    let mut pieces = round.drafts.iter().map(|draft| &draft.token).chain(best).chain(round.committed());
    pieces.all(is_plain) && if round.is_tree() { round.drafts.len() >= 3 } else { round.drafts.len() == 3 }
}

/// Of each category so many, at most two from an answer, half of them such that few simple ways to judge are right.
fn chosen(all: Vec<Item>) -> Vec<Item> {
    let mut by_category: BTreeMap<Category, Vec<Item>> = BTreeMap::new();
    for item in all {
        by_category.entry(item.category.unwrap()).or_default().push(item);
    }
    let mut bank: Vec<Item> = Vec::new();
    for (category, mut items) in by_category {
        println!("{}: {} rounds", category.name(), items.len());
        let fooled = |item: &Item| {
            let right = |way: &super::Belief| {
                score_of(std::slice::from_ref(item), |shown| way.answer(shown).as_ref() == Some(&shown.right))
            };
            SIMPLE.iter().map(right).sum::<usize>()
        };
        // lossy rules are several: in turn
        let mut from_run: BTreeMap<String, usize> = BTreeMap::new();
        let wanted = if category == Category::Lossy { WANTED + 6 } else { WANTED };
        items.sort_by_key(fooled);
        let spread: Vec<Item> = spread(&items);
        let (mut taken, half) = (0, wanted / 2);
        for item in items.iter().take(half * 6).cloned().chain(spread) {
            let limit = if taken < half { half } else { wanted };
            let run = item.id.rsplit_once(' ').unwrap().0.to_owned();
            let rule = item.id.split(' ').next().unwrap().to_owned();
            let of_rule = bank
                .iter()
                .filter(|other| other.category == Some(category) && other.id.starts_with(&format!("{rule} ")))
                .count();
            let is_new = bank.iter().all(|other| !other.asks_same(&item));
            let count = from_run.entry(run).or_default();
            let most_of_rule = if category == Category::Lossy { 4 } else { wanted };
            if taken < limit.max(half) && taken < wanted && is_new && *count < FROM_RUN && of_rule < most_of_rule {
                *count += 1;
                taken += 1;
                bank.push(item);
            }
        }
    }
    bank
}

/// The same items in an order that mixes runs.
fn spread(items: &[Item]) -> Vec<Item> {
    let mut keyed: Vec<_> = items.iter().enumerate().map(|(at, item)| (at * 7919 % items.len().max(1), item)).collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, item)| item.clone()).collect()
}

fn string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn token(piece: &Piece) -> String {
    format!("[{}, {}]", piece.id.0, string(&piece.lossy()))
}

/// A row's candidates: the best three, and those of these tokens.
fn row(row: &Prediction, also: &[draftscope_protocol::TokenId]) -> String {
    let kept = row.top.iter().enumerate().filter(|(rank, c)| *rank < 3 || also.contains(&c.piece.id));
    let shown = kept.map(|(_, c)| format!("[{}, {}, {}]", c.piece.id.0, string(&c.piece.lossy()), number(c.prob)));
    format!("[{}]", shown.collect::<Vec<_>>().join(", "))
}

/// A number that TOML reads as one with a point.
fn number(value: f32) -> String {
    format!("{value:?}")
}

fn written(item: &Item) -> String {
    let round: &Round = &item.round;
    let verdict = round.verdict.as_ref().unwrap();
    let mut text = String::from("\n[[item]]\n");
    let _ = writeln!(text, "id = {}", string(&item.id));
    let _ = writeln!(text, "category = {}", string(item.category.unwrap().name()));
    let _ = writeln!(text, "prompt = {}", string(&item.prompt));
    let _ = writeln!(text, "context = {}", string(&item.context));
    let _ = writeln!(text, "round = {}\nbase_len = {}\nrule = \"{}\"", round.number(), round.base_len(), round.rule);
    if !round.leniency.is_default() {
        let _ = writeln!(text, "leniency = {{ confidence = {} }}", number(round.leniency.confidence));
    }
    if !round.sampling.is_greedy() {
        let Sampling { temperature, top_k, seed, .. } = round.sampling;
        let _ =
            writeln!(text, "sampling = {{ temperature = {}, top_k = {top_k}, seed = {seed} }}", number(temperature));
    }
    text.push_str("drafts = [\n");
    for (index, draft) in round.drafts.iter().enumerate() {
        let judgement = verdict.judgements[index];
        let outcome = serde_json::to_string(&judgement.outcome).unwrap();
        let _ = write!(text, "  {{ token = {}, outcome = {outcome}", token(&draft.token));
        let _ = write!(text, ", p = {}", number(judgement.p.unwrap()));
        if let Some(q) = draft.q {
            let _ = write!(text, ", q = {}", number(q));
        }
        if let Some(u) = judgement.u {
            let _ = write!(text, ", u = {}", number(u));
        }
        if let Some(own) = draft.row {
            let _ = write!(text, ", row = {own}");
        }
        if let Some(instead) = round.departure(index) {
            let _ = write!(text, ", instead = {}", instead.0);
        }
        if !round.sampling.is_greedy() {
            let _ = write!(text, ", top = {}", row(&draft.top, &[draft.token.id]));
        }
        text.push_str(" },\n");
    }
    text.push_str("]\nrows = [\n");
    for (at, prediction) in round.rows().iter().enumerate() {
        let judged: Vec<_> = (0..round.drafts.len()).filter(|index| round.row_of(*index) == at).collect();
        let also: Vec<_> = judged.iter().map(|index| round.drafts[*index].token.id).collect();
        // a draft that is not among the recorded candidates is known by its judgement
        let mut whole = prediction.clone();
        for index in judged {
            let piece = &round.drafts[index].token;
            if whole.find(piece.id).is_none() && verdict.judgements[index].p.unwrap() > 0.0 {
                let prob = verdict.judgements[index].p.unwrap();
                whole.top.push(draftscope_protocol::Candidate { piece: piece.clone(), prob });
            }
        }
        let _ = writeln!(text, "  {},", row(&whole, &also));
    }
    let _ = writeln!(text, "]\nnext = {}", token(&round.next_piece().unwrap()));
    let _ = writeln!(text, "bonus = {}", verdict.next_kind == NextKind::Bonus);
    if let Some(u) = verdict.next_u {
        let _ = writeln!(text, "next_u = {}", number(u));
    }
    text
}

#[test]
#[ignore = "runs the model and writes the bank"]
fn make_bank() {
    let all = settings().into_iter().flat_map(|(name, settings)| asked(name, settings)).collect();
    let bank = chosen(all);
    for way in SIMPLE {
        let right = score_of(&bank, |shown| way.answer(shown).as_ref() == Some(&shown.right));
        println!("{}: {right} of {}", way.name(), bank.len());
    }
    let mut text = String::from(
        "# Rounds of real runs of SmolLM2-135M-Instruct with its bundled draft module, for the quiz.\n\
         # Made by `cargo test --release -p draftscope-learn make_bank -- --ignored`; not written by hand.\n",
    );
    bank.iter().for_each(|item| text.push_str(&written(item)));
    let path = assets().join("quiz/bank.toml");
    let read = super::super::bank::read(&text).unwrap();
    assert_eq!(read.len(), bank.len());
    std::fs::write(path, text).unwrap();
}
