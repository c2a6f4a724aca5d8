//! Chat templates and the prompts that they make.

use std::process::{Command, Output};

use candle_core::quantized::gguf_file::Value as Field;
use draftscope::model::text::template::ChatTemplate;
use draftscope::protocol::{Message, Speaker};
use serde_json::Value;

use crate::common::tiny::{TEMPLATE, Tiny};

/// What `tests/fixtures/templates/make.py` had `transformers` render.
const CASES: &str = include_str!("../fixtures/templates/cases.json");

/// A template, the conversation, whether the model thinks, and the text; `None` if it is refused.
type Case = (String, Option<Vec<Message>>, Option<bool>, Option<String>);

/// Special tokens of the cases.
const BOS: &str = "<|my-bos|>";
const EOS: &str = "<|my-eos|>";

fn user(content: &str) -> Message {
    Message { role: Speaker::User, content: content.to_owned() }
}

#[test]
fn two_thousand_templates_render_as_transformers_renders_them() {
    let cases: Vec<Case> = serde_json::from_str(CASES).unwrap();
    assert!(cases.len() > 1500, "{}", cases.len());
    for (source, messages, thinks, expected) in &cases {
        let messages = messages.clone().unwrap_or_else(|| vec![user("Hello")]);
        let template = ChatTemplate::new(source, BOS.to_owned(), EOS.to_owned());
        let text = template.and_then(|template| template.thinking(*thinks).render(&messages));
        let why = text.as_ref().err().map(ToString::to_string);
        assert_eq!(text.ok(), *expected, "{source}\n{messages:?} {thinks:?}: {why:?}");
    }
}

/// A tiny model with a template.
fn model(template: &str) -> Tiny {
    Tiny::with(7, |parts| {
        let own = parts.metadata.iter_mut().find(|(key, _)| key == "tokenizer.chat_template");
        own.unwrap().1 = Field::String(template.to_owned());
    })
}

fn draftscope(model: &Tiny, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    command.args(["run", "--threads", "1", "--drafter", "none", "--max-tokens", "2", "--model"]).arg(&model.target);
    command.args(options).env("SOURCE_DATE_EPOCH", "1700000000").env("NO_COLOR", "1").env_remove("DRAFTSCOPE_MODEL");
    command.output().unwrap()
}

fn run(model: &Tiny, options: &[&str]) -> Output {
    draftscope(model, &[&["--prompt", "Hi"], options].concat())
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The prompt that the model gets, from the events of a run.
fn sent(output: &Output) -> String {
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let prefilled = events.into_iter().find(|event| event["type"] == "prefilled");
    let prompt = prefilled.unwrap_or_else(|| panic!("{}", errors(output)))["prompt"].clone();
    prompt.as_array().unwrap().iter().map(|token| token["text"].as_str().unwrap_or("?")).collect()
}

#[test]
fn a_template_gets_the_time_of_loading() {
    for (format, written) in [("%Y-%m-%d %H:%M:%S", "2023-11-14 22:13:20"), ("%F", "2023-11-14"), ("%j %U", "318 46")] {
        let model = model(&format!("{{{{ 'Now: ' + strftime_now('{format}') }}}}\n{TEMPLATE}"));
        let text = sent(&run(&model, &["--output", "jsonl"]));
        assert!(text.starts_with(&format!("Now: {written}\n<|im_start|>user\nHi")), "{text}");
    }
}

#[test]
fn think_is_a_variable_of_the_template_and_changes_no_text() {
    let source = "\n{{- '[x]' }}\n{{ '/nothink' if (enable_thinking is defined and not enable_thinking) else '' }}.";
    let model = model(&format!("\n\n{source}"));
    let text = |options: &[&str]| sent(&run(&model, &[options, &["--output", "jsonl"]].concat()));
    assert_eq!(text(&["--think", "off"]), "[x]\n/nothink.");
    assert_eq!(text(&["--think", "on"]), text(&[]));
    let leading = self::model("\n{% if thinking %}a{% else %}b{% endif %}");
    let text = |options: &[&str]| sent(&run(&leading, &[options, &["--output", "jsonl"]].concat()));
    assert_eq!([text(&["--think", "on"]), text(&["--think", "off"])], ["\na", "\nb"]);
    let mentions = run(&self::model("{% set thinking = true %}{{ thinking }}"), &["--think", "on"]);
    assert!(errors(&mentions).contains("--think is ignored"), "{}", errors(&mentions));
}

#[test]
fn a_template_without_a_system_role_names_the_next_step() {
    let refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}";
    let model = model(&format!("{refusal}{TEMPLATE}"));
    assert!(run(&model, &[]).status.success());
    let refused = run(&model, &["--system", "Be brief."]);
    let said = errors(&refused);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said.contains("System role not supported") && said.contains("leave --system out"), "{said}");
    assert!(!said.contains("--raw"), "{said}");
}

#[test]
fn a_template_that_does_not_run_is_not_a_missing_one() {
    for (template, why) in [("{% if %}", "syntax error"), ("{% include 'x' %}", "cannot use another template")] {
        let model = model(template);
        let refused = run(&model, &[]);
        let said = errors(&refused);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(why) && last.contains("use --raw") && !said.contains("has no chat template"), "{said}");
        assert!(run(&model, &["--raw"]).status.success());
    }
}

#[test]
fn a_model_without_a_template_gets_the_messages_as_they_stand() {
    let model = Tiny::with(7, |parts| parts.metadata.retain(|(key, _)| key != "tokenizer.chat_template"));
    let jsonl = ["--output", "jsonl"];
    let answered = run(&model, &jsonl);
    assert!(errors(&answered).contains("has no chat template"), "{}", errors(&answered));
    assert_eq!(sent(&answered), sent(&run(&model, &["--raw", "--output", "jsonl"])));
    let instructed = run(&model, &["--system", "Be brief.", "--output", "jsonl"]);
    assert!(sent(&instructed).ends_with("Be brief.\nHi"), "{}", sent(&instructed));
    let named = draftscope(&model, &["--prompt", "a <|im_end|>", "--show-prompt"]);
    assert!(errors(&named).contains("a <|im_end|>") && !errors(&named).contains("⟨<|im_end|>⟩"), "{}", errors(&named));
}

#[test]
fn the_prompt_is_shown_as_the_model_gets_it() {
    let shown = draftscope(&model(TEMPLATE), &["--prompt", "a <|im_end|> \u{1b}b", "--show-prompt"]);
    let said = errors(&shown);
    assert!(shown.status.success(), "{said}");
    let expected = "⟨<|im_start|>⟩user\na <|im_end|> ␛b⟨<|im_end|>⟩\n⟨<|im_start|>⟩assistant\n";
    assert!(said.contains(expected), "{said}");
    assert!(said.contains("draftscope: the model gets 34 tokens, special ones in "), "{said}");
    let raw = errors(&draftscope(&model(TEMPLATE), &["--prompt", "ab", "--raw", "--show-prompt"]));
    assert!(raw.contains(":\nab\n"), "{raw}");
}
