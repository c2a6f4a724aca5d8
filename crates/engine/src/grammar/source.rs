//! From a grammar's text to what `llguidance` compiles.

use draftscope_protocol::{Grammar, GrammarKind};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities};
use llguidance::{ParserFactory, TokenParser};
use serde_json::{Value, json};

use super::error::GrammarError;
use super::gbnf::{is_gbnf, to_lark};
use super::limits::{MOST_BYTES, MOST_LINES, limits, reason};

/// Stack of the thread that makes a parser. Only what is used takes memory.
const STACK_BYTES: usize = 256 << 20;

/// What `llguidance` says of a token that a vocabulary lacks.
const UNKNOWN_TOKEN: [&str; 2] = ["unknown special token", "Token range end too large"];

/// Checks a grammar without a model, so that a mistake is found before weights are loaded. Tokens that it names are looked up
/// in the model's vocabulary only.
///
/// # Errors
/// As [`Constraint::new`](super::Constraint::new).
pub fn check(grammar: &Grammar) -> Result<(), GrammarError> {
    let vocabulary = ApproximateTokEnv::single_byte_env();
    let factory = ParserFactory::new(&vocabulary, InferenceCapabilities::default(), &[]);
    let mut factory = factory.map_err(|error| invalid(grammar, &error))?;
    *factory.quiet().limits_mut() = limits();
    match compile(&factory, grammar) {
        // the model has tokens of its own
        Err(GrammarError::Invalid { why, .. }) if UNKNOWN_TOKEN.iter().any(|said| why.contains(said)) => Ok(()),
        compiled => compiled.map(|_| ()),
    }
}

/// A parser at the beginning of an answer, where at least one token may come.
pub(super) fn compile(factory: &ParserFactory, grammar: &Grammar) -> Result<TokenParser, GrammarError> {
    let source = source(grammar)?;
    let mut parser = parser(factory, source).map_err(|error| invalid(grammar, &error))?;
    parser.start_without_prompt();
    let mut probe = parser.deep_clone();
    let first = llguidance::panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| probe.compute_mask()));
    match first {
        Ok(_) => Ok(parser),
        Err(_) if probe.stop_reason().is_ok() => Err(GrammarError::AllowsNothing { noun: grammar.kind.noun() }),
        Err(error) => Err(invalid(grammar, &error)),
    }
}

/// The parser, made on a stack that rules within rules, as many as a grammar can have, do not fill.
fn parser(factory: &ParserFactory, source: TopLevelGrammar) -> anyhow::Result<TokenParser> {
    std::thread::scope(|scope| {
        let made = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || factory.create_parser(source))?;
        made.join().unwrap_or_else(|_| Err(anyhow::anyhow!("it made the parser fail; please report this")))
    })
}

fn source(grammar: &Grammar) -> Result<TopLevelGrammar, GrammarError> {
    if grammar.text.len() > MOST_BYTES {
        return Err(invalid(
            grammar,
            &format!("it has {} bytes, and at most {MOST_BYTES} are read", grammar.text.len()),
        ));
    }
    match grammar.kind {
        GrammarKind::JsonSchema => {
            let schema: Value = serde_json::from_str(&grammar.text).map_err(|error| invalid(grammar, &error))?;
            Ok(TopLevelGrammar::from_json_schema(with_usual_spaces(schema)))
        }
        GrammarKind::Regex => Ok(TopLevelGrammar::from_regex(&grammar.text)),
        GrammarKind::Lark if is_gbnf(&grammar.text) => {
            let lark = to_lark(&grammar.text).map_err(|error| invalid(grammar, &error))?;
            Ok(TopLevelGrammar::from_lark(lark))
        }
        GrammarKind::Lark if grammar.text.lines().count() > MOST_LINES => {
            Err(invalid(grammar, &format!("it has more than {MOST_LINES} lines")))
        }
        GrammarKind::Lark => Ok(TopLevelGrammar::from_lark(grammar.text.clone())),
    }
}

/// The schema with spaces as `json.dumps` of Python sets them, unless it says so itself by `x-guidance`: with free white
/// space no brace, comma or colon is forced, and a model may write blank lines for ever.
fn with_usual_spaces(mut schema: Value) -> Value {
    if let Value::Object(keys) = &mut schema
        && !keys.contains_key("x-guidance")
    {
        let usual = json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
        keys.insert("x-guidance".to_owned(), usual);
    }
    schema
}

pub(super) fn invalid(grammar: &Grammar, why: &dyn std::fmt::Display) -> GrammarError {
    GrammarError::Invalid { noun: grammar.kind.noun(), why: reason(why) }
}
