//! Answers under a grammar, on tiny models: speculation changes neither the text nor the distribution, tokens that the
//! grammar forces are accepted drafts, and grammars that cannot be used end in a sentence.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::chi_square::{ChiSquare, ONCE_IN_A_MILLION};
use common::tiny::{self, Tiny};
use draftscope::engine::grammar::{Constraint, GrammarError, MOST_BYTES, Vocabulary, check};
use draftscope::engine::identity::{self, Ending, Record, diagnose_under};
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::{DrafterSet, ModelDrafter, MtpDrafter};
use draftscope::engine::{self, EngineConfig};
use draftscope::headless::{Driver, Outcome};
use draftscope::model::Model;
use draftscope::model::load::{Loaded, load};
use draftscope::model::options::LoadOptions;
use draftscope::model::text::tokenizer::TextCodec;
use draftscope::protocol::policy::{DraftStopRule, Policy};
use draftscope::protocol::{
    Baseline, Branch, Command, Continuation, Costs, DraftRefused, Drafted, DrafterKind, Drafting, EventKind, Grammar,
    GrammarKind, Lane, Masked, Outcome as Judged, Prompt, Sampling, Settings, TokenId, VerifyRule,
};

const SCHEMA: &str = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "the": {"enum": ["in", "then"]}, "ok": {"type": "boolean"}}, "required": ["name", "the", "ok"], "additionalProperties": false}"#;

const LARK: &str =
    "start: item (\", \" item){2}\nitem: \"the \" NOUN | \"in \" NUMBER\nNOUN: /[a-d]{2,4}/\nNUMBER: /[0-9]{1,3}/";

fn grammar(kind: GrammarKind, text: &str) -> Grammar {
    Grammar { kind, text: text.to_owned() }
}

/// As a lexeme `the` would be read where a name is meant, so names are read character by character.
const GBNF: &str = "root ::= item (\", \" item){2} end\nitem ::= name | \"the \" [a-d]{2,4} | \"(\" item \")\"\n\
                    name ::= [a-z]+\nend ::= \".\"";

fn grammars() -> [Grammar; 4] {
    [
        grammar(GrammarKind::JsonSchema, SCHEMA),
        grammar(GrammarKind::Regex, "(the|in) [a-e]{3,9}(xyz|xy)? end[0-9]+\\."),
        grammar(GrammarKind::Lark, LARK),
        grammar(GrammarKind::Lark, GBNF),
    ]
}

/// A tiny model and its tokens.
struct Case {
    files: Tiny,
    target: Box<dyn Model>,
    codec: Arc<TextCodec>,
    vocabulary: Vocabulary,
}

impl Case {
    fn new(seed: u64) -> Self {
        let files = Tiny::new(seed);
        let Loaded { target, codec, .. } = files.load();
        let vocabulary = Vocabulary::new(Arc::clone(&codec)).unwrap();
        Self { files, target, codec, vocabulary }
    }

    fn prompt(&self) -> Vec<TokenId> {
        self.codec.encode("the thin inn is in the ").unwrap()
    }

    fn drafters(&self) -> DrafterSet {
        let recipe = LoadOptions { mtp: Some(tiny::mtp_stack(4, 2)), ..self.files.recipe() };
        let loaded = load(&recipe, &mut |_, _, _| {}).unwrap();
        let modules = std::iter::once(loaded.mtp.unwrap().0).chain(loaded.deeper).collect();
        let mut drafters = DrafterSet::default();
        drafters.add(DrafterKind::Mtp, Box::new(MtpDrafter::stack(modules)));
        drafters.add(DrafterKind::DraftModel, Box::new(ModelDrafter::new(Tiny::new(99).load().target)));
        drafters
    }

    fn decoder(&self, settings: &Settings, grammar: &Grammar) -> Decoder {
        let mut decoder = Decoder::new(self.target.fork().unwrap(), Box::new(self.drafters()), settings);
        decoder.constrain(Some(Constraint::new(&self.vocabulary, grammar).unwrap()));
        decoder
    }

    /// The answer up to its end or `len` tokens, and the events of its rounds.
    fn answer(&self, decoder: &mut Decoder, len: usize) -> (Vec<TokenId>, Vec<EventKind>) {
        let first = decoder.prefill(1, &self.prompt()).unwrap().first;
        let (mut output, mut events) = (vec![first.id], Vec::new());
        while output.len() < len && !output.iter().any(|token| self.codec.is_end(*token)) {
            let committed = decoder.round(&mut |event| {
                events.push(event);
                Duration::ZERO
            });
            output.extend(committed.unwrap());
        }
        let end = output.iter().position(|token| self.codec.is_end(*token)).map_or(len, |end| end + 1);
        output.truncate(end.min(len));
        (output, events)
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| self.codec.piece(*token).text_bytes().to_vec()).collect();
        String::from_utf8(bytes).unwrap()
    }
}

fn plain(temperature: f32, seed: u64) -> Settings {
    Settings { draft_len: 0, sampling: Sampling { temperature, seed, ..Sampling::default() }, ..Settings::default() }
}

fn stop_rule() -> DraftStopRule {
    let verify_us = (0..16).map(|rows| 1000.0 + 20.0 * f64::from(rows)).collect();
    Policy::new(Costs { verify_us, draft_us: 50.0, ..Costs::default() }, 6).stop_rule(6)
}

#[test]
fn every_drafter_and_k_gives_the_plain_text_under_the_same_grammar() {
    let case = Case::new(6);
    for grammar in grammars() {
        for temperature in [0.0, 0.9] {
            let base = plain(temperature, 3);
            let (want, _) = case.answer(&mut case.decoder(&base, &grammar), 60);
            let rules = VerifyRule::ALL.iter().copied().filter(|rule| rule.is_lossless());
            // at a temperature, only `exact` determines the text by the seed
            let rules: Vec<_> = rules.filter(|rule| temperature == 0.0 || *rule == VerifyRule::Exact).collect();
            for drafter in DrafterKind::ALL.iter().copied() {
                let mut decoder = case.decoder(&Settings { draft_len: 1, drafter, ..base }, &grammar);
                for draft_len in 1..=6 {
                    let rule = rules[usize::from(draft_len) % rules.len()];
                    decoder.set(&Settings { draft_len, drafter, rule, ..base });
                    let (got, events) = case.answer(&mut decoder, 60);
                    let notices: Vec<_> = events.iter().filter(|e| matches!(e, EventKind::Notice { .. })).collect();
                    assert_eq!(got, want, "{drafter}, k = {draft_len}, {rule}, {temperature}, {:?}", grammar.kind);
                    assert!(notices.is_empty(), "{drafter}: {notices:?}");
                }
            }
        }
    }
}

#[test]
fn trees_and_alternatives_give_the_plain_text_under_the_same_grammar() {
    let case = Case::new(8);
    for grammar in grammars() {
        for temperature in [0.0, 0.9] {
            let base = plain(temperature, 5);
            let (want, _) = case.answer(&mut case.decoder(&base, &grammar), 60);
            for (nodes, k) in [(3, 1), (3, 2), (8, 3), (15, 6)] {
                let drafting = Drafting { tree: Some(nodes), ..Drafting::default() };
                let settings = Settings { draft_len: k, drafting, ..base };
                let (got, _) = case.answer(&mut case.decoder(&settings, &grammar), 60);
                assert_eq!(got, want, "{nodes} nodes, k = {k}, {temperature}, {:?}", grammar.kind);
            }
            for drafter in DrafterKind::ALL.iter().filter(|kind| kind.chain().contains(&DrafterKind::Mtp)) {
                let mut decoder = case.decoder(&Settings { draft_len: 6, drafter: *drafter, ..base }, &grammar);
                decoder.set_stop_rule(Some(stop_rule()));
                let (got, events) = case.answer(&mut decoder, 60);
                assert_eq!(got, want, "alternatives, {drafter}, {temperature}, {:?}", grammar.kind);
                let beside =
                    events.iter().any(|event| matches!(event, EventKind::Drafted(Drafted { row: Some(_), .. })));
                assert!(beside || temperature > 0.0 || *drafter != DrafterKind::Mtp, "no alternative was tried");
            }
        }
    }
}

#[test]
fn a_difference_under_a_grammar_is_diagnosed_after_the_mask() {
    let case = Case::new(6);
    let grammar = &grammars()[0];
    let ending = Ending { limit: 40, is_end: &|token| case.codec.is_end(token) };
    let record = |settings: &Settings| {
        identity::answer(&mut case.decoder(settings, grammar), &case.prompt(), ending, None).unwrap()
    };
    let (want, got) = (record(&plain(0.0, 3)), record(&Settings { draft_len: 3, ..plain(0.0, 3) }));
    let mut constraint = Constraint::new(&case.vocabulary, grammar).unwrap();
    let fresh = case.target.fork().unwrap();
    let mut diagnose = |got: &Record| diagnose_under(Some(&mut constraint), fresh.as_ref(), &want, got).unwrap();
    assert_eq!(diagnose(&got), None);
    let mut broken = got;
    broken.tokens[7] = TokenId(broken.tokens[7].0 ^ 1);
    let found = diagnose(&broken).unwrap();
    // one row at a time, after the mask, gives the plain token, which may be none of the best before it
    assert_eq!((found.index, found.row_by_row.map(|side| side.best)), (7, Some(want.tokens[7])), "{found:?}");
    assert_eq!(found.fresh_pass.map(|side| side.best), Some(want.tokens[7]), "{found:?}");
}

/// How often each answer comes, over seeds.
fn counts(case: &Case, grammar: &Grammar, settings: &Settings, seeds: std::ops::Range<u64>) -> HashMap<String, f64> {
    let mut decoder = case.decoder(settings, grammar);
    let mut counts = HashMap::new();
    for seed in seeds {
        let sampling = Sampling { seed, ..settings.sampling };
        decoder.set(&Settings { sampling, ..*settings });
        let (tokens, _) = case.answer(&mut decoder, 12);
        *counts.entry(case.text(&tokens)).or_default() += 1.0;
    }
    counts
}

#[test]
fn sampled_answers_have_the_distribution_of_plain_ones_under_the_same_grammar() {
    let case = Case::new(4);
    let grammar = grammar(GrammarKind::Regex, "[a-d](the|in)?[u-z]{1,2}");
    let base = plain(4.0, 0);
    let n = 500;
    let want = counts(&case, &grammar, &base, 0..n);
    assert!(want.len() > 8, "{} kinds of answer", want.len());
    let tree = Drafting { tree: Some(6), ..Drafting::default() };
    let ways = [
        (VerifyRule::Rejection, DrafterKind::Mtp, Drafting::default()),
        (VerifyRule::Rejection, DrafterKind::DraftModel, Drafting::default()),
        (VerifyRule::Rejection, DrafterKind::Random, Drafting::default()),
        (VerifyRule::Rejection, DrafterKind::Mtp, tree),
        (VerifyRule::Block, DrafterKind::Mtp, Drafting::default()),
        (VerifyRule::Exact, DrafterKind::EarlyExit, Drafting::default()),
    ];
    for (rule, drafter, drafting) in ways {
        let settings = Settings { draft_len: 3, rule, drafter, drafting, ..base };
        let got = counts(&case, &grammar, &settings, n..2 * n);
        let texts: std::collections::BTreeSet<&String> = want.keys().chain(got.keys()).collect();
        let of = |counts: &HashMap<String, f64>, text: &String| counts.get(text).copied().unwrap_or_default();
        let test = ChiSquare::of_two(texts.into_iter().map(|text| (of(&want, text), of(&got, text))));
        assert!(test.freedom >= 5.0 && !test.exceeds(ONCE_IN_A_MILLION), "{rule}, {drafter}: {test:?}");
    }
}

#[test]
fn answers_are_what_the_schema_describes_and_forced_tokens_are_accepted_drafts() {
    let case = Case::new(6);
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("schema.json", schema).unwrap();
    let index = compiler.compile("schema.json", &mut schemas).unwrap();
    let grammar = grammar(GrammarKind::JsonSchema, SCHEMA);
    for (temperature, seed) in [(0.0, 0), (1.0, 1), (1.0, 2), (1.5, 3), (1.5, 4)] {
        let settings = Settings { draft_len: 3, ..plain(temperature, seed) };
        let (tokens, events) = case.answer(&mut case.decoder(&settings, &grammar), 200);
        assert!(case.codec.is_end(*tokens.last().unwrap()), "the answer ends by itself");
        let text = case.text(&tokens);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(schemas.validate(&json, index).is_ok(), "{text}");
        let (mut forced, mut accepted, mut round) = (0, 0, Vec::new());
        for event in &events {
            match event {
                EventKind::RoundStarted(_) => round.clear(),
                EventKind::Drafted(Drafted { forced, .. }) => round.push(*forced),
                EventKind::Verified { verdict, .. } => {
                    let judged = round.iter().zip(&verdict.judgements).filter(|(is_forced, _)| **is_forced);
                    for (_, judgement) in judged.filter(|(_, j)| j.outcome != Judged::NotReached) {
                        forced += 1;
                        accepted += usize::from(judgement.outcome == Judged::Accepted);
                        assert_eq!(judgement.p, Some(1.0));
                    }
                }
                EventKind::Masked(Masked { rows, .. }) => assert!(rows.iter().all(|row| row.allowed > 0)),
                _ => {}
            }
        }
        assert!(forced > 15 && forced == accepted, "{accepted} of {forced} forced drafts were accepted");
        let rounds = events.iter().filter(|event| matches!(event, EventKind::Committed(_))).count();
        assert!(rounds * 3 < tokens.len() * 2, "{rounds} rounds for {} tokens", tokens.len());
    }
}

#[test]
fn what_a_drafter_preferred_is_reported_with_the_rule_that_refused_it() {
    let case = Case::new(6);
    let settings = Settings { draft_len: 3, drafter: DrafterKind::Mtp, ..plain(0.0, 0) };
    let (_, events) = case.answer(&mut case.decoder(&settings, &grammars()[2]), 40);
    let refused: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            EventKind::DraftRefused(DraftRefused { q, expected, .. }) => Some((q, expected)),
            _ => None,
        })
        .collect();
    assert!(!refused.is_empty(), "a random module prefers forbidden tokens");
    assert!(refused.iter().all(|(q, expected)| q.is_some_and(|q| q > 0.0) && !expected.is_empty()), "{refused:?}");
}

#[test]
fn an_answer_continues_from_any_of_its_tokens_and_one_that_does_not_match_is_refused() {
    let case = Case::new(6);
    let grammar = &grammars()[0];
    let mut decoder = case.decoder(&Settings { draft_len: 3, ..plain(0.0, 0) }, grammar);
    let (want, _) = case.answer(&mut decoder, 80);
    for kept in [1, 5, want.len() / 2, want.len() - 2] {
        let prompt = [&case.prompt()[..], &want[..kept]].concat();
        let begun = decoder.prefill_from(2, (&prompt, kept), None, &mut || true).unwrap();
        let mut got = vec![begun.first.id];
        while got.len() < want.len() - kept {
            got.extend(decoder.round(&mut |_| Duration::ZERO).unwrap());
        }
        got.truncate(want.len() - kept);
        assert_eq!(got, want[kept..], "{kept} tokens kept");
    }
    let wrong = [&case.prompt()[..], &want[..3], &case.codec.encode("?").unwrap()].concat();
    let refused = decoder.prefill_from(3, (&wrong, 4), None, &mut || true).unwrap_err().to_string();
    assert!(refused.contains("forbids the token 4"), "{refused}");
}

/// The reason why a grammar is refused, which comes soon.
fn refusal(kind: GrammarKind, text: &str) -> String {
    let started = Instant::now();
    let error = check(&grammar(kind, text)).unwrap_err().to_string();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?} for {error}", started.elapsed());
    assert!(error.lines().count() == 1 && error.len() < 500, "{error}");
    error
}

#[test]
fn grammars_that_cannot_be_used_end_in_one_sentence() {
    use GrammarKind::{JsonSchema, Lark, Regex};
    let long = format!("{{\"const\": \"{}\"}}", "x".repeat(10 << 20));
    assert!(refusal(JsonSchema, &long).contains(&MOST_BYTES.to_string()));
    assert!(refusal(JsonSchema, "{").contains("JSON schema cannot be used"));
    assert!(refusal(JsonSchema, "{\"type\": \"nonsense\"}").contains("nonsense"));
    refusal(JsonSchema, &format!("{}{}", "{\"not\":".repeat(400), "}".repeat(400)));
    refusal(JsonSchema, "{\"$ref\": \"#/$defs/missing\"}");
    refusal(Regex, "(");
    refusal(Regex, "(?=a)b");
    refusal(Lark, "start: unknown_rule");
    assert!(refusal(Lark, "root ::= \"a\" b").contains("rule 'b'"), "GBNF");
    assert!(refusal(JsonSchema, "false").contains("JSON schema"));
    refusal(Regex, "[^\\s\\S]");
    refusal(JsonSchema, "{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 4}");
}

#[test]
fn recursive_schemas_and_costly_expressions_stay_within_their_limits() {
    let tree = r##"{"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"the": {"type": "string"}, "in": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["the"]}}}"##;
    let nested = "((a{1,60}){1,60}){1,60}b";
    let overlap = "(a|aa|aaa)*(a|aa|aaa)*(a|aa|aaa)*(a|aa|aaa)*c";
    let far = "[ab]*a[ab]{40}c";
    let case = Case::new(6);
    for (kind, text) in [
        (GrammarKind::JsonSchema, tree),
        (GrammarKind::Regex, nested),
        (GrammarKind::Regex, overlap),
        (GrammarKind::Regex, far),
    ] {
        let started = Instant::now();
        let grammar = grammar(kind, text);
        match Constraint::new(&case.vocabulary, &grammar) {
            Err(error) => assert!(matches!(error, GrammarError::Invalid { .. }), "{error}"),
            Ok(_) => {
                let settings = Settings { draft_len: 3, ..plain(0.9, 1) };
                let (tokens, _) = case.answer(&mut case.decoder(&settings, &grammar), 120);
                assert!(!tokens.is_empty());
            }
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{:?} for {text}", started.elapsed());
    }
}

fn driver(files: &Tiny, settings: Settings, grammar: Grammar) -> Driver {
    Driver::new(engine::spawn(EngineConfig { recipe: files.recipe(), settings, grammar: Some(grammar) }).unwrap())
}

#[test]
fn a_run_has_its_grammar_in_the_header_and_says_when_an_answer_is_cut_short() {
    let files = Tiny::new(3);
    let settings = Settings { draft_len: 3, max_tokens: 9, baseline: Baseline::Race, ..Settings::default() };
    let mut driver = driver(&files, settings, grammar(GrammarKind::JsonSchema, SCHEMA));
    assert_eq!(driver.answer(Prompt::Raw("the thin inn".into())), Outcome::Answered);
    let session = driver.session();
    assert_eq!(session.header().unwrap().grammar.as_ref().unwrap().text, SCHEMA);
    let notices: Vec<String> = session.notices().map(ToString::to_string).collect();
    assert!(notices.iter().any(|notice| notice.contains("9 tokens are not enough")), "{notices:?}");
    let turn = &session.turns()[0];
    let ids = |lane| turn.answer(lane).tokens.iter().map(|token| token.piece.id).collect::<Vec<_>>();
    assert_eq!(ids(Lane::Speculative), ids(Lane::Plain), "the plain lane has the same grammar");
    let rounds = &turn.answer(Lane::Speculative).rounds;
    assert!(rounds.iter().any(|round| round.drafts.iter().any(|draft| draft.forced)));
    assert!(
        rounds.iter().all(|round| round.masked.as_ref().map_or(0, |masked| masked.rows.len()) == round.rows().len())
    );
}

#[test]
fn a_branch_goes_on_under_the_grammar_and_one_that_breaks_it_is_refused() {
    let files = Tiny::new(3);
    let settings = Settings { draft_len: 3, max_tokens: 60, baseline: Baseline::Off, ..Settings::default() };
    let mut driver = driver(&files, settings, grammar(GrammarKind::JsonSchema, SCHEMA));
    assert_eq!(driver.answer(Prompt::Raw("the thin inn".into())), Outcome::Answered);
    let turn = driver.session().turns()[0].clone();
    let answer = turn.answer(Lane::Speculative);
    let output: Vec<TokenId> = answer.tokens.iter().map(|token| token.piece.id).collect();
    let from = |kept: &[TokenId]| {
        let branch = Branch { turn: 1, kept: kept.len() as u32, forced: false };
        let tokens = answer.prompt.iter().chain(kept).copied().collect();
        Prompt::Branch(Continuation { typed: turn.typed.clone(), tokens, branch, again: None })
    };
    assert_eq!(driver.answer(from(&output[..7])), Outcome::Answered);
    let again: Vec<TokenId> =
        driver.session().turns()[1].answer(Lane::Speculative).tokens.iter().map(|token| token.piece.id).collect();
    assert_eq!(again[..output.len().min(again.len())], output[..output.len().min(again.len())]);
    let mut wrong = output[..7].to_vec();
    wrong[3] = TokenId(5);
    assert_ne!(driver.answer(from(&wrong)), Outcome::Answered);
    driver.send(Command::Shutdown);
}
