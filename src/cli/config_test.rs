//! What the configuration file means for the arguments.

use std::path::Path;

use clap::{CommandFactory, FromArgMatches};
use draftscope_host::config::{KEYS, TEMPLATE, UserFiles, with_defaults};
use draftscope_protocol::{DrafterKind, Settings};

use super::{Cli, CliCommand};

fn read(text: &str) -> UserFiles {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    UserFiles::read(&path)
}

fn parse(entries: &[(String, String)], args: &[&str]) -> Cli {
    let (command, warnings) = with_defaults(Cli::command(), entries);
    assert_eq!(warnings, Vec::<String>::new());
    Cli::from_arg_matches(&command.try_get_matches_from(args).unwrap()).unwrap()
}

#[test]
fn an_option_wins_over_the_file_and_the_file_over_the_default() {
    let files = read("temperature = 0.7\nmax-tokens = 64\nascii = true\ntheme = \"nord\"\n");
    let cli = parse(&files.entries, &["draftscope"]);
    assert_eq!((cli.chat.decode.sample.temperature, cli.chat.decode.sample.max_tokens), (0.7, 64));
    assert!(cli.chat.screen.look.ascii);
    assert_eq!(cli.chat.screen.look.theme.as_deref(), Some("nord"));
    let cli = parse(&files.entries, &["draftscope", "--temperature", "0.2"]);
    assert_eq!(cli.chat.decode.sample.temperature, 0.2);
    let run = parse(&files.entries, &["draftscope", "run", "--prompt", "hi"]);
    let Some(CliCommand::Run(args)) = run.command else { panic!("run") };
    assert_eq!(args.decode.sample.temperature, 0.7, "the file applies to subcommands, too");
}

#[test]
fn commands_with_options_of_their_own_keep_their_defaults() {
    let files = read(
        "threads = \"auto\"\ndevice = \"auto\"\nctx = 16384\ndraft-len = 0\nverify = \"typical\"\nmax-tokens = 1\n\
         temperature = 0.7\ntop-k = 5\nmodel = \"mine.gguf\"\ntheme = \"light\"\n",
    );
    let proof = parse(&files.entries, &["draftscope", "verify-identity"]);
    let Some(CliCommand::VerifyIdentity(args)) = proof.command else { panic!("verify-identity") };
    assert_eq!((args.k.len(), args.verify.as_str(), args.max_tokens), (6, "exact", 64));
    assert_eq!((args.temperature, args.top_k, args.model.ctx), (0.0, 0, Some(16384)));
    let account = parse(&files.entries, &["draftscope", "explain"]);
    let Some(CliCommand::Explain(args)) = account.command else { panic!("explain") };
    assert_eq!(args.decode.sample.temperature, 0.0);
    let train = parse(&files.entries, &["draftscope", "train", "--out", "a", "--work", "b"]);
    let Some(CliCommand::Train(args)) = train.command else { panic!("train") };
    assert_eq!((args.threads, args.device.as_str()), (2, "cpu"));
    assert_eq!(args.model.as_deref(), Some(Path::new("mine.gguf")));
    let made = parse(&files.entries, &["draftscope", "generate", "--tasks", "a", "--out", "b"]);
    let Some(CliCommand::Generate(args)) = made.command else { panic!("generate") };
    assert_eq!((args.threads, args.ctx), (1, 1024));
    let page = parse(&files.entries, &["draftscope", "export", "a.jsonl", "--to", "svg"]);
    let Some(CliCommand::Export(args)) = page.command else { panic!("export") };
    assert_eq!(args.theme, None);
}

#[test]
fn a_part_that_is_not_understood_is_a_warning_and_the_rest_is_used() {
    let files = read("temprature = 1\nseed = [1]\ntop-k = 5\nverify = \"exakt\"\n");
    assert_eq!(files.warnings.len(), 2, "{:?}", files.warnings);
    let (command, warnings) = with_defaults(Cli::command(), &files.entries);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("config: verify: "), "{warnings:?}");
    let cli = Cli::from_arg_matches(&command.try_get_matches_from(["draftscope"]).unwrap()).unwrap();
    assert_eq!(cli.chat.decode.sample.top_k, 5);
    assert!(read("= broken").warnings[0].contains("the whole file is ignored"));
}

#[test]
fn the_template_names_every_key_and_its_defaults_are_valid() {
    let open: String = TEMPLATE
        .lines()
        .filter_map(|l| l.strip_prefix("# "))
        .filter(|l| l.contains(" = "))
        .fold(String::new(), |text, line| text + line + "\n");
    let files = read(&open);
    assert_eq!(files.warnings, Vec::<String>::new());
    let named: Vec<&str> = files.entries.iter().map(|(key, _)| key.as_str()).collect();
    assert!(KEYS.iter().all(|key| named.contains(key)), "{named:?}");
    let (_, warnings) = with_defaults(Cli::command(), &files.entries);
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn one_name_of_the_default_drafter_stands_everywhere() {
    let drafter = |args: &[&str]| parse(&[], args).model_args_mut().unwrap().drafter.clone();
    let default = DrafterKind::DEFAULT.name();
    assert_eq!(Settings::default().drafter, DrafterKind::DEFAULT);
    for command in ["chat", "verify-identity", "bench", "learn"] {
        assert_eq!(drafter(&["draftscope", command]), default, "{command}");
    }
    for command in ["run", "compare"] {
        assert_eq!(drafter(&["draftscope", command, "--prompt", "x"]), default, "{command}");
    }
    assert_eq!(drafter(&["draftscope"]), default);
    assert!(TEMPLATE.contains(&format!("\n# drafter = \"{default}\"")), "the file that config init writes");
    // it explains the module
    assert_eq!(drafter(&["draftscope", "explain"]), "mtp");
    assert_eq!(drafter(&["draftscope", "explain", "--drafter", default]), default);
    let files = read("drafter = \"ngram\"\n");
    let cli = parse(&files.entries, &["draftscope"]);
    assert_eq!(cli.chat.model.drafter, "ngram");
}
